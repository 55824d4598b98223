/** Hooks: runs, sessions and pending actions, which draw a component again when what it shows has changed. */

import { isMessage, isPendingAction, runOf, select, submit, type ActionContent, type Activity, type MessageContent, type Of, type RunContent, type State, type Submitted } from "@proscenium/client";
import { useCallback, useMemo, useSyncExternalStore } from "react";
import { useProscenium } from "./provider.js";
import type { Entry, Source, Target } from "./sources.js";

/** What hooks say of a connection. */
export interface Followed {
  /** `undefined` before it opens, as on a server that renders the page. */
  connection: State | undefined;
}

export interface RunView extends Followed {
  /** The run's own activity: its title, status and usage. `undefined` before it is known. */
  run: Of<RunContent> | undefined;
  activities: Activity[];
  messages: Of<MessageContent>[];
}

export interface SessionView extends Followed {
  activities: Activity[];
  messages: Of<MessageContent>[];
}

export interface Sessions extends Followed {
  /** As `GET /v1/sessions` lists them. */
  sessions: Entry[];
  isHydrated: boolean;
}

/** An action that waits for a decision. */
export interface PendingAction {
  runId?: string;
  sessionId?: string;
  actionId: string;
  title: string;
  /** What is decided: `{ kind: "command", command: … }`. */
  subject?: ActionContent["subject"];
  /** The whole action, if its run or session is followed. */
  content?: ActionContent;
}

/** A control that decides: `approve`, `reject`, `answer` or `edit`. */
export type Answer = "approve" | "reject" | "answer" | "edit";

export interface Actions extends Followed {
  actions: PendingAction[];
  isHydrated: boolean;
  /** Sends a decision. Resolves when the server has recorded it; the action leaves the list once its runtime confirms it. Rejects with a `Problem`. */
  answer: (action: Pick<PendingAction, "runId" | "sessionId" | "actionId">, control: Answer, value?: unknown) => Promise<Submitted>;
}

const EMPTY: never[] = [];
const NO_STATE = () => undefined;

function useSource(target: Target): Source {
  const { sources } = useProscenium();
  return sources.of(target);
}

const useConnection = (source: Source) => useSyncExternalStore(source.subscribe, source.getState, NO_STATE);

/** Activities of a source, as an array that stays the same until one of them changes. */
function useSelected<One extends Activity>(source: Source, shows?: (activity: Activity) => activity is One): One[] {
  const selection = useMemo(() => select<One>(source.store, shows), [source, shows]);
  return useSyncExternalStore(selection.subscribe, selection.get, () => EMPTY as One[]);
}

/** Follows a run. */
export function useRun(run: string): RunView {
  const source = useSource({ run });
  const connection = useConnection(source);
  const activities = useSelected<Activity>(source);
  const messages = useSelected(source, isMessage);
  return { connection, activities, messages, run: runOf(source.store, run) };
}

/** Follows all runs of a session. */
export function useSession(session: string): SessionView {
  const source = useSource({ session });
  const connection = useConnection(source);
  return { connection, activities: useSelected<Activity>(source), messages: useSelected(source, isMessage) };
}

/** Follows the list of sessions, the newest first. */
export function useSessions({ limit = 100 }: { limit?: number } = {}): Sessions {
  const source = useSource({ lists: { sessions: true, limit } });
  const connection = useConnection(source);
  const { sessions, isHydrated } = useSyncExternalStore(source.subscribe, source.getEntries, source.getEntries);
  return { connection, sessions, isHydrated };
}

/** Follows the pending actions of a run or a session; without one, those of all sessions. */
export function useActions(of: { run?: string; session?: string } = {}): Actions {
  const { run, session } = of;
  const { sources: { place } } = useProscenium();
  const source = useSource(run !== undefined ? { run } : session !== undefined ? { session } : { lists: { attention: true } });
  const connection = useConnection(source);
  const followed = useSelected(source, isPendingAction);
  const { attention, isHydrated } = useSyncExternalStore(source.subscribe, source.getEntries, source.getEntries);
  const isList = run === undefined && session === undefined;
  const actions = useMemo(() => (isList ? attention.map(ofEntry) : followed.map(ofActivity)), [isList, attention, followed]);
  const answer = useCallback<Actions["answer"]>(({ runId, sessionId, actionId }, control, value) => submit(place, {
    ...(runId ? { run: runId } : { session: sessionId ?? "" }), control, actionId, audience: place.audience, ...(value !== undefined && { value }),
  }), [place]);
  return { connection, actions, isHydrated: isList ? isHydrated : source.store.runs().some((one) => one.isHydrated), answer };
}

function ofActivity({ runId, sessionId, activityId, content }: Of<ActionContent>): PendingAction {
  return { actionId: activityId, title: typeof content.title === "string" ? content.title : "", content, ...(runId && { runId }), ...(sessionId && { sessionId }), ...(content.subject && { subject: content.subject }) };
}

function ofEntry({ runId, sessionId, actionId, title, subject }: Entry): PendingAction {
  return { actionId: String(actionId), title: String(title ?? ""), ...(runId ? { runId: String(runId) } : {}), ...(sessionId ? { sessionId: String(sessionId) } : {}), ...(subject ? { subject: subject as NonNullable<ActionContent["subject"]> } : {}) };
}
