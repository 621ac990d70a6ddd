//! The rows of Strimzi's Drain Cleaner that have in-process tests.

use axum::Router;
use axum::routing::get;
use clap::Parser as _;
use quorumgate::cli::{Cli, Command};
use quorumgate::serve::ServeLimits;
use quorumgate::serve::certificate::Reload;

use crate::serve::listener::{Listener, Pki};

fn namespaces(options: &[&str]) -> Result<Vec<String>, String> {
    let needed = ["--tls-cert=/tls.crt", "--tls-key=/tls.key"];
    let arguments = ["quorumgate", "run"].into_iter().chain(needed);
    let cli = Cli::try_parse_from(arguments.chain(options.iter().copied()));
    match cli.map_err(|refused| refused.to_string())?.command {
        Command::Run(run) => Ok(run.namespaces),
        other => panic!("{other:?}"),
    }
}

#[test]
fn s15_namespaces_are_a_list_or_everything_and_nothing_is_guessed() {
    assert_eq!(namespaces(&[]).unwrap(), Vec::<String>::new());
    assert_eq!(namespaces(&["--namespaces=kafka"]).unwrap(), ["kafka"]);
    assert_eq!(namespaces(&["--namespaces=a,b"]).unwrap(), ["a", "b"]);
    for guess in ["a, b", " a", "*", "a,*", ""] {
        let said = namespaces(&[&format!("--namespaces={guess}")]).unwrap_err();
        assert!(said.contains("--namespaces"), "{guess:?}: {said}");
    }
}

#[tokio::test]
async fn s17_the_same_certificate_in_new_files_is_not_loaded_again() {
    let mut pki = Pki::new();
    let router = Router::new().route("/", get(|| async { "ok" }));
    let listener = Listener::start(&pki, router, ServeLimits::default()).await;
    let files = pki.files();
    let read = |path| std::fs::read_to_string(path).unwrap();
    let (certificate, key) = (read(files.certificate), read(files.key));
    for _ in 0..3 {
        pki.publish(&certificate, &key);
        let look = listener.certificate.reload();
        assert!(matches!(look, Reload::Same), "{look:?}");
    }
    let fresh = pki.rotate();
    listener.shows_soon(&fresh).await;
    let page = listener.metrics.exposition().unwrap();
    assert!(
        page.contains("quorumgate_certificate_reloads_total 1"),
        "{page}"
    );
    assert!(
        page.contains("quorumgate_certificate_reload_failures_total 0"),
        "{page}"
    );
}
