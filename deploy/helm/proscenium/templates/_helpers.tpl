{{- define "proscenium.name" -}}
{{- .Values.nameOverride | default .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "proscenium.selector" -}}
app.kubernetes.io/name: proscenium
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "proscenium.labels" -}}
{{ include "proscenium.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "proscenium.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{- define "proscenium.secret" -}}
{{- .Values.secret.existing | default (include "proscenium.name" .) -}}
{{- end }}

{{- define "proscenium.scheme" -}}
{{ if .Values.tls.secretName }}https{{ else }}http{{ end }}
{{- end }}

{{- /* The items of the Secret that the nodes read as files. */ -}}
{{- define "proscenium.items" -}}
{{- $items := list -}}
{{- if eq .Values.auth.by "key" }}{{ $items = append $items "auth-key" }}{{ end -}}
{{- if or (eq .Values.mode "cluster") (hasKey .Values.secret.values "signing-key.pem") }}{{ $items = append $items "signing-key.pem" }}{{ end -}}
{{- if and (eq .Values.mode "cluster") .Values.cluster.nats.credsItem }}{{ $items = append $items .Values.cluster.nats.credsItem }}{{ end -}}
{{- $items | toJson -}}
{{- end }}

{{- /* The addresses of the NATS servers. The kubelet puts the password in. */ -}}
{{- define "proscenium.servers" -}}
{{- if .Values.cluster.nats.install -}}
{{- $servers := list -}}
{{- $name := include "proscenium.name" . -}}
{{- range $i := until 3 }}{{ $servers = append $servers (printf "nats://proscenium:$(NATS_PASSWORD)@%s-nats-%d.%s-nats:4222" $name $i $name) }}{{ end -}}
{{- join "," $servers -}}
{{- else -}}
{{- join "," .Values.cluster.nats.servers -}}
{{- end -}}
{{- end }}

{{- define "proscenium.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "proscenium.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}

{{- /* Two pods of one StatefulSet on two machines: a dict with the root and the component. */ -}}
{{- define "proscenium.spread" -}}
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: {{ .root.Values.spread }}
  labelSelector:
    matchLabels:
      {{- include "proscenium.selector" .root | nindent 6 }}
      app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- /* What the schema cannot say: values that depend on others. */ -}}
{{- define "proscenium.check" -}}
{{- $cluster := eq .Values.mode "cluster" -}}
{{- $made := .Values.secret.values -}}
{{- if not .Values.image.repository }}{{ fail "image.repository is empty. Set it to the image in your registry, such as registry.example.com/proscenium." }}{{ end -}}
{{- if and .Values.secret.existing $made }}{{ fail "secret.existing and secret.values are both set. Keep one of them." }}{{ end -}}
{{- if not .Values.secret.existing }}
  {{- if and (eq .Values.auth.by "key") (not (hasKey $made "auth-key")) }}{{ fail "auth.by is `key`, and no Secret has the key. Set secret.existing to a Secret with the item auth-key, or set secret.values.auth-key. `proscenium token --generate` makes a key." }}{{ end -}}
  {{- if and $cluster (not (hasKey $made "signing-key.pem")) }}{{ fail "mode is `cluster`, and no Secret has the signing key that all nodes share. Set secret.existing to a Secret with the item signing-key.pem, or set that item in secret.values. `openssl genpkey -algorithm ed25519` makes one." }}{{ end -}}
  {{- if and $cluster .Values.cluster.nats.install (not (hasKey $made "nats-password")) }}{{ fail "cluster.nats.install is true, and no Secret has the password of its servers. Set secret.existing to a Secret with the item nats-password, or set that item in secret.values." }}{{ end -}}
  {{- with .Values.cluster.nats.credsItem }}{{ if and $cluster (not (hasKey $made .)) }}{{ fail (printf "cluster.nats.credsItem is %s, and no Secret has that item. Set secret.existing, or the item in secret.values." .) }}{{ end }}{{ end -}}
{{- end -}}
{{- if and (eq .Values.auth.by "issuer") (not .Values.auth.issuer) }}{{ fail "auth.by is `issuer`, and auth.issuer is empty. Set it to the https:// address of the identity provider." }}{{ end -}}
{{- if and $cluster (not .Values.cluster.nats.install) (not .Values.cluster.nats.servers) }}{{ fail "cluster.nats.install is false, and cluster.nats.servers is empty. Give the URLs of your NATS servers." }}{{ end -}}
{{- if and .Values.cluster.nats.install .Values.cluster.nats.servers }}{{ fail "cluster.nats.servers is set, and cluster.nats.install is true. Set cluster.nats.install to false to use your servers." }}{{ end -}}
{{- if and $cluster .Values.tls.secretName }}{{ fail "tls.secretName is for one node: the nodes of a cluster reach each other by http. Use the ingress for TLS." }}{{ end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.host) }}{{ fail "ingress.enabled is true, and ingress.host is empty. Set the name under which people open the page." }}{{ end -}}
{{- if and .Values.serviceMonitor.enabled (ne .Values.auth.by "none") (not .Values.serviceMonitor.tokenSecret.name) }}{{ fail "serviceMonitor.enabled is true, and /metrics needs a token. Set serviceMonitor.tokenSecret.name to a Secret with a token that may `admin`." }}{{ end -}}
{{- end }}
