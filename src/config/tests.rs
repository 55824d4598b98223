//! The settings: their defaults, their forms and their limits.

use super::*;
use clap::{CommandFactory, Parser};

#[derive(Parser)]
struct Server {
    #[command(flatten)]
    config: Config,
}

fn config(arguments: &[&str]) -> Result<Config, clap::Error> {
    Server::try_parse_from([&["serve"], arguments].concat()).map(|server| server.config)
}

#[test]
fn command_line_defaults_match_the_defaults_of_each_module() {
    let config = config(&[]).unwrap();
    assert_eq!(format!("{:?}", config.limits()), format!("{:?}", Limits::default()));
    assert_eq!(format!("{:?}", config.keep_alive()), format!("{:?}", KeepAlive::default()));
    assert_eq!(format!("{:?}", config.sizes()), format!("{:?}", FeedConfig::default()));
    assert_eq!(format!("{:?}", config.policy()), format!("{:?}", Policy::default()));
    assert_eq!((config.listen.as_str(), config.data_dir.to_str()), ("127.0.0.1:8787", Some("./data")));
    assert_eq!(config.compact_after(), None);
}

#[test]
fn every_flag_has_an_environment_variable_of_the_same_name() {
    for argument in Server::command().get_arguments().filter(|argument| argument.get_id() != "help") {
        let flag = argument.get_long().expect("every option has a long flag");
        let variable = argument.get_env().and_then(|name| name.to_str());
        assert_eq!(variable, Some(format!("PROSCENIUM_{}", flag.replace('-', "_").to_uppercase()).as_str()));
    }
}

#[test]
fn sizes_are_bytes_or_have_a_unit_and_are_range_checked() {
    let check = |text: &str, expected: Result<u64, &str>| {
        assert_eq!(
            size(text, KIB, 16 * MIB).map_err(|why| why.contains(expected.unwrap_err())),
            expected.map_err(|_| true),
            "{text}"
        );
    };
    check("4096", Ok(4096));
    check("32KiB", Ok(32 * KIB));
    check("1 mib", Ok(MIB));
    check("1023", Err("1KiB to 16MiB"));
    check("1GiB", Err("out of range"));
    check("99999999999999999999GiB", Err("not a size"));
    check("18446744073709551615GiB", Err("out of range"));
    check("12parsecs", Err("not a unit"));
    check("-1", Err("not a size"));
    check("", Err("not a size"));
}

#[test]
fn an_address_that_others_can_reach_is_refused_with_the_remedy() {
    let check = |arguments: &[&str], address: &str, admitted: bool| {
        let answer = config(arguments).unwrap().check_listen_address(address.parse().unwrap());
        assert_eq!(answer.is_ok(), admitted, "{address}");
        assert!(answer.is_ok() || answer.unwrap_err().to_string().contains("--insecure"));
    };
    check(&[], "127.0.0.1:0", true);
    check(&[], "[::1]:0", true);
    check(&[], "[::ffff:127.0.0.1]:0", true);
    check(&[], "0.0.0.0:0", false);
    check(&[], "[::]:0", false);
    check(&[], "192.168.1.7:0", false);
    check(&["--insecure"], "0.0.0.0:0", true);
    check(&["--auth-key", "key"], "0.0.0.0:0", true);
    check(&["--auth-jwks", "keys.json"], "[::]:0", true);
    check(&["--auth-issuer", "https://login.example"], "[::]:0", true);
    check(&["--auth-proxy-header", "x-user", "--auth-proxy-secret", "secret"], "[::]:0", true);
    check(&["--auth-revoked", "names"], "0.0.0.0:0", false);
}

#[test]
fn a_collector_is_a_url_and_requires_the_otlp_feature() {
    for (address, taken) in [
        ("http://127.0.0.1:4318/", Some("http://127.0.0.1:4318")),
        ("https://collector.example/otlp", Some("https://collector.example/otlp")),
        ("127.0.0.1:4318", None),
        ("grpc://127.0.0.1:4317", None),
        ("/v1/traces", None),
        ("http://collector.example?key=1", None),
    ] {
        match (collector_url(address, true), taken) {
            (Ok(address), Some(taken)) => assert_eq!(address, taken),
            (Err(why), None) => assert!(why.contains("http://127.0.0.1:4318"), "{why}"),
            (got, _) => panic!("{address}: {got:?}"),
        }
        assert!(collector_url(address, false).unwrap_err().contains("the feature `otlp`"));
    }
    let given = config(&["--otlp-endpoint", "http://127.0.0.1:4318"]);
    assert_eq!(given.is_ok(), cfg!(feature = "otlp"));
    assert_eq!(config(&[]).unwrap().otlp_endpoint, None);
}

#[test]
fn a_certificate_requires_its_key_and_the_reverse() {
    assert!(config(&["--tls-cert", "c.pem"]).is_err() && config(&["--tls-key", "k.pem"]).is_err());
    let files = config(&["--tls-cert", "c.pem", "--tls-key", "k.pem"]).unwrap().tls().expect("both files are configured");
    assert_eq!((files.cert, files.key), ("c.pem".into(), "k.pem".into()));
    assert!(config(&[]).unwrap().tls().is_none());
}

#[test]
fn an_embed_origin_is_also_a_cors_origin_and_a_bad_one_is_named() {
    let both = config(&["--cors-origin", "https://api.example", "--embed-origin", "https://App.example/,http://localhost:5173"]);
    let origins = both.unwrap().origins();
    assert_eq!(origins.embedders(), ["https://app.example", "http://localhost:5173"]);
    let all = Origins::new(["https://api.example"]).unwrap();
    assert_eq!(origins, all.with_embedders(["https://app.example", "http://localhost:5173"]).unwrap());
    let refused = config(&["--embed-origin", "app.example"]).err().unwrap().to_string();
    assert!(refused.contains("--embed-origin") && refused.contains("\"app.example\" is not an origin"), "{refused}");
}

#[test]
fn an_out_of_range_value_is_rejected_when_it_is_parsed() {
    for arguments in
        [["--depth-max", "121"], ["--workers", "0"], ["--drain-ms", "10001"], ["--sync", "sometimes"], ["--publish-burst", "9"]]
    {
        assert!(config(&arguments).is_err(), "{arguments:?}");
    }
}

#[test]
fn keys_come_from_a_file_or_an_address_or_from_the_issuer_if_nothing_else_is_given() {
    let auth = |arguments: &[&str]| config(arguments).unwrap().auth().map_err(|error| error.to_string());
    let issuer = ["--auth-issuer", "https://login.example"];
    let provider = auth(&issuer).unwrap().provider.expect("the issuer is discovered");
    assert_eq!(provider.issuer.map(|issuer| issuer.as_str().to_owned()), Some("https://login.example".to_owned()));
    for keys in [["--auth-key", "key"], ["--auth-jwks", "keys.json"]] {
        let config = auth(&[&issuer[..], &keys].concat()).unwrap();
        assert_eq!((config.provider, config.issuer.as_deref()), (None, Some("https://login.example")));
        assert!(auth(&[&["--auth-issuer", "any name"][..], &keys].concat()).is_ok());
    }
    let by_address = auth(&[&issuer[..], &["--auth-jwks", "https://login.example/keys"]].concat()).unwrap();
    let provider = by_address.provider.expect("the address is fetched");
    assert!(by_address.jwks.is_none() && provider.issuer.is_none() && provider.key_set.is_some());
    // The page signs in at the issuer, whichever keys verify tokens.
    let signs_in = [&issuer[..], &["--sign-in-client-id", "page"]].concat();
    let provider = auth(&[&signs_in[..], &["--auth-key", "key"]].concat()).unwrap().provider.expect("the issuer is discovered");
    assert!(provider.has_other_keys && provider.issuer.is_some());
    assert!(!auth(&signs_in).unwrap().provider.expect("the issuer is discovered").has_other_keys);
    let error = auth(&["--auth-issuer", "any name", "--auth-key", "key", "--sign-in-client-id", "page"]).unwrap_err();
    assert!(error.contains("its sign-in"), "{error}");
    let error = auth(&["--auth-issuer", "any name"]).unwrap_err();
    assert!(error.contains("--auth-issuer: \"any name\" is not a URL") && error.contains("--auth-jwks"), "{error}");
    let refused = |arguments: &[&str]| config(arguments).expect_err("refused").to_string();
    assert!(refused(&["--auth-jwks", "http://login.example/keys"]).contains("not protected by TLS"));
    assert!(refused(&["--auth-claim", "groups=ops:can=fly"]).contains("unknown variant `fly`"));
    assert!(refused(&["--sign-in-client-id", "page"]).contains("--auth-issuer"));
    for (parameter, why) in [("state=x", "the page sets state itself"), ("audience", "is not NAME=VALUE")] {
        assert!(refused(&[&signs_in[..], &["--sign-in-parameter", parameter]].concat()).contains(why), "{parameter}");
    }
    assert!(refused(&["--auth-proxy-header", "x-user"]).contains("--auth-proxy-secret"));
    assert!(refused(&["--auth-proxy-header", "cookie", "--auth-proxy-secret", "s"]).contains("another meaning"));
}
