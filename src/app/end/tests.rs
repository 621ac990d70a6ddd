use super::*;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use futures::FutureExt as _;
use tokio::net::TcpListener;

use crate::serve::{ServeLimits, Transport, serve};

fn end() -> End {
    let (supervisor, unexpected_ends) = Supervisor::new();
    End {
        supervisor,
        unexpected_ends,
        shutdown: Shutdown::default(),
        ending: CancellationToken::new(),
        leave_time: Duration::from_millis(10),
        drain_time: Duration::from_secs(1),
    }
}

async fn no_signal() -> Result<&'static str> {
    std::future::pending().await
}

fn breaks(words: &str) {
    panic!("{words}");
}

fn sigterm() -> impl Future<Output = Result<&'static str>> {
    std::future::ready(Ok("SIGTERM"))
}

#[tokio::test]
async fn a_task_that_ends_ends_the_process_with_an_error_that_names_it() {
    let end = end();
    let (supervisor, ending) = (end.supervisor.clone(), end.ending.clone());
    let (leaving, asked) = (end.shutdown.leaving.clone(), ending.clone());
    supervisor.spawn_endless("stays", ending.clone(), std::future::pending::<()>());
    supervisor.spawn("dispatch", ending, async { breaks("no such cluster") });
    let said = end.after(no_signal()).await.unwrap_err().to_string();
    assert!(
        said.contains(r#""dispatch" panicked (no such cluster)"#),
        "{said}"
    );
    assert!(leaving.is_cancelled() && asked.is_cancelled());
}

#[tokio::test]
async fn a_listener_that_ends_by_itself_ends_the_process() {
    let end = end();
    let asked = end.shutdown.closing.clone();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    // The server gets a shutdown of its own, which only this test begins.
    let its_own = Shutdown::default();
    its_own.closing.cancel();
    let server = serve(
        listener,
        Transport::Plain,
        Router::new(),
        its_own,
        ServeLimits::default(),
    );
    end.supervisor.spawn("webhooks", asked, server);
    let said = end.after(no_signal()).await.unwrap_err().to_string();
    assert!(said.contains(r#""webhooks" returned"#), "{said}");
}

#[tokio::test]
async fn a_signal_ends_it_without_an_error() {
    let end = end();
    let ending = end.ending.clone();
    end.supervisor
        .spawn("loop", ending.clone(), ending.cancelled_owned());
    end.after(sigterm()).await.unwrap();
}

#[tokio::test]
async fn a_ledger_that_is_being_marked_untrusted_is_waited_for() {
    let end = end();
    let written = Arc::new(AtomicBool::new(false));
    let (go_on, wait) = tokio::sync::oneshot::channel::<()>();
    let cooled = Arc::clone(&written);
    let mut wait = Some(wait);
    let work = move || {
        let (wait, cooled) = (wait.take(), Arc::clone(&cooled));
        async move {
            let _ = wait.unwrap().await;
            cooled.store(true, Ordering::Relaxed);
        }
    };
    end.supervisor
        .work("what outlives an answer", work, |_, _| ());
    let asked = end.ending.clone();
    let mut ending = Box::pin(end.after(sigterm()));
    assert!((&mut ending).now_or_never().is_none());
    tokio::select! {
        _ = &mut ending => panic!("it does not wait"),
        () = asked.cancelled() => {}
    }
    go_on.send(()).unwrap();
    ending.await.unwrap();
    assert!(written.load(Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn what_does_not_end_is_not_waited_for_for_ever() {
    let end = end();
    let ending = end.ending.clone();
    end.supervisor
        .spawn("hangs", ending, std::future::pending::<()>());
    end.supervisor
        .work("hangs", std::future::pending, |_, _| ());
    end.after(sigterm()).await.unwrap();
}
