use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::oneshot;

use super::*;

const SOON: Duration = Duration::from_secs(10);

async fn lost(unexpected_ends: &mut UnexpectedEnds) -> Ended {
    tokio::time::timeout(SOON, unexpected_ends.next())
        .await
        .expect("nobody misses the task")
}

fn ended(how: TaskEnd) -> Ended {
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
    let (supervisor, mut unexpected_ends) = Supervisor::new();
    let asked = CancellationToken::new();
    supervisor.spawn("loop", asked.clone(), async {});
    assert_eq!(lost(&mut unexpected_ends).await, ended(TaskEnd::Returned));
    supervisor.spawn("loop", asked.clone(), async {
        Err::<(), _>(anyhow::anyhow!("no port").context("cannot listen"))
    });
    let failed = TaskEnd::Failed("cannot listen: no port".into());
    assert_eq!(lost(&mut unexpected_ends).await, ended(failed));
    supervisor.spawn("loop", asked.clone(), async { breaks("at once") });
    let panicked = TaskEnd::Panicked("at once".into());
    assert_eq!(lost(&mut unexpected_ends).await, ended(panicked));
    supervisor.spawn_endless("loop", asked, std::future::ready(()));
    assert_eq!(lost(&mut unexpected_ends).await, ended(TaskEnd::Returned));
}

#[tokio::test]
async fn a_task_that_ends_when_asked_is_not_missed_unless_it_breaks() {
    let (supervisor, mut unexpected_ends) = Supervisor::new();
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
    assert_eq!(lost(&mut unexpected_ends).await.task, "breaks");
    assert_eq!(unexpected_ends.next().now_or_never(), None);
}

/// Panics the first times, and then succeeds.
fn breaks_first(times: usize, done: oneshot::Sender<()>) -> impl FnMut() -> BoxFuture<'static, ()> {
    let (mut left, mut done) = (times, Some(done));
    move || {
        let now = left == 0;
        left = left.saturating_sub(1);
        let done = done.take_if(|_| now);
        async move {
            match done {
                Some(done) => done.send(()).unwrap(),
                None => breaks("no such member"),
            }
        }
        .boxed()
    }
}

/// The calls of `broke`: how the task ended, and the pause after it.
type Told = Arc<Mutex<Vec<(TaskEnd, u64)>>>;

fn told(told: &Told) -> impl Fn(&TaskEnd, Duration) + Clone + Send + use<> {
    let told = Arc::clone(told);
    move |how, rest| told.lock().unwrap().push((how.clone(), rest.as_secs()))
}

fn told_of_duties(list: &Told) -> impl Fn(&'static str, &TaskEnd, Duration) + Clone + Send + use<> {
    let told = told(list);
    move |duty, how, rest| {
        assert_eq!(duty, "duty");
        told(how, rest);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_done_for_one_cluster_begins_again_after_a_rest_that_grows_and_ends_nothing_else() {
    let (supervisor, mut unexpected_ends) = Supervisor::new();
    let asked = CancellationToken::new();
    let (sender, done) = oneshot::channel();
    let list = Told::default();
    let duty = breaks_first(8, sender);
    supervisor.spawn_duties(
        "duties",
        asked.clone(),
        [("duty", duty)],
        told_of_duties(&list),
    );
    done.await.expect("it is not begun again");
    let panicked = TaskEnd::Panicked("no such member".into());
    let rests = [1, 2, 4, 8, 16, 32, 60, 60];
    let mut expected = rests.map(|rest| (panicked.clone(), rest)).to_vec();
    expected.push((TaskEnd::Returned, 60));
    assert_eq!(*list.lock().unwrap(), expected);
    assert_eq!(unexpected_ends.next().now_or_never(), None);
    asked.cancel();
    supervisor.tasks_ended().await;
    assert_eq!(unexpected_ends.next().now_or_never(), None);
}

#[tokio::test(start_paused = true)]
async fn what_went_well_for_long_rests_as_after_the_first_time_and_what_returns_is_begun_again() {
    let (supervisor, _losses) = Supervisor::new();
    let asked = CancellationToken::new();
    let list = Told::default();
    let mut lasts = [0, 0, 61, 0].map(Duration::from_secs).into_iter();
    let (sender, done) = oneshot::channel::<()>();
    let mut sender = Some(sender);
    let duty = move || {
        if let Some(lasts) = lasts.next() {
            return sleep(lasts).boxed();
        }
        drop(sender.take());
        std::future::pending().boxed()
    };
    supervisor.spawn_duties(
        "duties",
        asked.clone(),
        [("duty", duty)],
        told_of_duties(&list),
    );
    let _ = done.await;
    let rests = [1, 2, 1, 2].map(|rest| (TaskEnd::Returned, rest));
    assert_eq!(*list.lock().unwrap(), rests);
    asked.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_duty_that_breaks_leaves_the_others_of_its_task_alone() {
    let (supervisor, _losses) = Supervisor::new();
    let asked = CancellationToken::new();
    let (sender, done) = oneshot::channel();
    let list = Told::default();
    let mut goes_on = Some(sender);
    let duties = ["duty", "other"].map(|name| {
        let mut sender = goes_on.take_if(|_| name == "other");
        let begin = move || {
            let sender = sender.take();
            async move {
                match sender {
                    None => breaks("always"),
                    Some(sender) => {
                        sleep(2 * LONGEST_PAUSE).await;
                        let _ = sender.send(());
                        std::future::pending::<()>().await;
                    }
                }
            }
        };
        (name, begin)
    });
    supervisor.spawn_duties("duties", asked.clone(), duties, told_of_duties(&list));
    done.await.expect("the other duty goes on");
    assert!(list.lock().unwrap().len() > 2);
    asked.cancel();
    supervisor.tasks_ended().await;
}

#[tokio::test]
async fn work_is_waited_for() {
    let (supervisor, mut unexpected_ends) = Supervisor::new();
    let (done, wait) = oneshot::channel::<()>();
    let mut wait = Some(wait);
    let work = move || wait.take().unwrap().map(drop);
    supervisor.work("work", work, |_, _| ());
    assert_eq!(supervisor.work_done().now_or_never(), None);
    assert_eq!(supervisor.working(), 1);
    done.send(()).unwrap();
    tokio::time::timeout(SOON, supervisor.work_done())
        .await
        .expect("it is not done");
    assert_eq!(unexpected_ends.next().now_or_never(), None);
}

#[tokio::test(start_paused = true)]
async fn work_that_breaks_is_begun_again_until_it_is_done() {
    let (supervisor, mut unexpected_ends) = Supervisor::new();
    let (sender, done) = oneshot::channel();
    let list = Told::default();
    supervisor.work("work", breaks_first(2, sender), told(&list));
    done.await.expect("it is not begun again");
    supervisor.work_done().await;
    let panicked = TaskEnd::Panicked("no such member".into());
    assert_eq!(
        *list.lock().unwrap(),
        [(panicked.clone(), 1), (panicked, 2)]
    );
    assert_eq!(unexpected_ends.next().now_or_never(), None);
}

#[tokio::test]
async fn work_that_is_done_once_is_not_begun_again_and_ends_with_the_process() {
    let (supervisor, mut unexpected_ends) = Supervisor::new();
    let asked = CancellationToken::new();
    let (sender, told) = oneshot::channel();
    let broke = |how: &TaskEnd| sender.send(how.clone()).unwrap();
    let breaks = async { breaks("no such member") };
    supervisor.once(asked.clone(), breaks, broke);
    let panicked = TaskEnd::Panicked("no such member".into());
    assert_eq!(told.await, Ok(panicked));
    let (_held, never) = oneshot::channel::<()>();
    supervisor.once(asked.clone(), never.map(drop), |how| panic!("{how}"));
    asked.cancel();
    tokio::time::timeout(SOON, supervisor.tasks_ended())
        .await
        .expect("it goes on");
    assert_eq!(unexpected_ends.next().now_or_never(), None);
}

#[test]
fn what_is_said_of_a_lost_task_names_it_and_why() {
    let said = ended(TaskEnd::Panicked("index 3".into())).to_string();
    assert!(
        said.starts_with(r#"the task "loop" panicked (index 3): "#),
        "{said}"
    );
}
