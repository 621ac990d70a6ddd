use std::time::Duration;

use super::*;

const SOON: Duration = Duration::from_secs(10);

async fn lost(losses: &mut Losses) -> Ended {
    tokio::time::timeout(SOON, losses.next())
        .await
        .expect("nobody misses the task")
}

fn ended(how: How) -> Ended {
    Ended {
        task: "loop".into(),
        how,
    }
}

fn breaks(words: &str) {
    panic!("{words}");
}

#[tokio::test]
async fn a_task_that_returns_fails_or_panics_is_missed() {
    let (supervisor, mut losses) = Supervisor::new();
    let asked = CancellationToken::new();
    supervisor.spawn("loop", asked.clone(), async {});
    assert_eq!(lost(&mut losses).await, ended(How::Returned));
    supervisor.spawn("loop", asked.clone(), async {
        Err::<(), _>(anyhow::anyhow!("no port").context("cannot listen"))
    });
    let failed = How::Failed("cannot listen: no port".into());
    assert_eq!(lost(&mut losses).await, ended(failed));
    supervisor.spawn("loop", asked.clone(), async { breaks("at once") });
    let panicked = How::Panicked("at once".into());
    assert_eq!(lost(&mut losses).await, ended(panicked));
    supervisor.spawn_endless("loop", asked, std::future::ready(()));
    assert_eq!(lost(&mut losses).await, ended(How::Returned));
}

#[tokio::test]
async fn a_task_that_ends_when_asked_is_not_missed_unless_it_breaks() {
    let (supervisor, mut losses) = Supervisor::new();
    let asked = CancellationToken::new();
    supervisor.spawn("loop", asked.clone(), asked.clone().cancelled_owned());
    supervisor.spawn_endless("loop", asked.clone(), std::future::pending::<()>());
    let until = asked.clone();
    supervisor.spawn("breaks", asked.clone(), async move {
        until.cancelled().await;
        breaks("while it ended");
    });
    asked.cancel();
    tokio::time::timeout(SOON, supervisor.tasks_ended())
        .await
        .expect("a task does not end");
    assert_eq!(lost(&mut losses).await.task, "breaks");
    assert_eq!(losses.next().now_or_never(), None);
}

#[tokio::test]
async fn work_is_waited_for_and_missed_only_when_it_panics() {
    let (supervisor, mut losses) = Supervisor::new();
    let (done, wait) = tokio::sync::oneshot::channel::<()>();
    supervisor.work("work", async move {
        wait.await.unwrap();
    });
    assert_eq!(supervisor.work_done().now_or_never(), None);
    assert_eq!(supervisor.working(), 1);
    done.send(()).unwrap();
    tokio::time::timeout(SOON, supervisor.work_done())
        .await
        .expect("it is not done");
    assert_eq!(losses.next().now_or_never(), None);
    supervisor.work("work", async { breaks("halfway") });
    assert_eq!(lost(&mut losses).await.how, How::Panicked("halfway".into()));
}

#[test]
fn what_is_said_of_a_lost_task_names_it_and_why() {
    let said = ended(How::Panicked("index 3".into())).to_string();
    assert!(
        said.starts_with(r#"the task "loop" panicked (index 3): "#),
        "{said}"
    );
}
