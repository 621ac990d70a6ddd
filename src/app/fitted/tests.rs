use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tower::{ServiceExt as _, service_fn};

use super::*;
use crate::lists;

/// An API server with as many ConfigMaps as there are lengths, each of its length.
#[derive(Clone)]
struct Server {
    lengths: Arc<Vec<usize>>,
    asked: Arc<Mutex<Vec<u32>>>,
    /// The bytes of the longest answer.
    longest: Arc<AtomicUsize>,
}

impl Server {
    fn with(lengths: Vec<usize>) -> Self {
        Self {
            lengths: Arc::new(lengths),
            asked: Arc::default(),
            longest: Arc::default(),
        }
    }

    fn client(&self, fit: &Fit) -> Client {
        let server = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let answer = server.answer(request.uri());
            async move { Ok::<_, BoxError>(Response::new(Body::from(answer))) }
        });
        Client::new(fit.layer(service), "db")
    }

    fn answer(&self, uri: &Uri) -> Vec<u8> {
        let query = uri.query().unwrap();
        let number = |name: &str| {
            let mut all = query.split('&').filter_map(|one| one.split_once('='));
            all.find(|(key, _)| *key == name)
                .map(|(_, value)| value.parse::<usize>().unwrap())
        };
        let (first, limit) = (number("continue").unwrap_or(0), number("limit").unwrap());
        self.asked
            .lock()
            .unwrap()
            .push(u32::try_from(limit).unwrap());
        let end = (first + limit).min(self.lengths.len());
        let items: Vec<_> = (first..end)
            .map(|at| json!({"metadata": {"name": format!("{at:05}")}, "data": {"more": "x".repeat(self.lengths[at])}}))
            .collect();
        let token = if end < self.lengths.len() {
            end.to_string()
        } else {
            String::new()
        };
        let items = serde_json::to_string(&items).unwrap();
        let answer = format!(
            r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"continue":"{token}"}},"items":{items}}}"#
        );
        self.longest.fetch_max(answer.len(), Ordering::Relaxed);
        answer.into_bytes()
    }

    /// Lists everything. Returns the sizes of the pages that were asked for.
    async fn list(&self, fit: &Fit) -> Vec<u32> {
        let mut names = Vec::new();
        let maps: Api<ConfigMap> = Api::default_namespaced(self.client(fit));
        let every = ListParams::default();
        let all = lists::each(&maps, &every, |map| names.push(map.name_any()));
        all.await.unwrap();
        assert_eq!(names.len(), self.lengths.len());
        assert!(
            names.is_sorted_by(|one, next| one < next),
            "each once, in order"
        );
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

fn fit() -> Fit {
    Fit::new(Duration::from_secs(30))
}

const MANY: usize = 2000;

#[tokio::test]
async fn pages_of_small_objects_grow_to_five_hundred() {
    let asked = Server::with(vec![100; MANY]).list(&fit()).await;
    assert_eq!(asked, [64, 128, 256, 500, 500, 500, 500]);
}

#[tokio::test]
async fn pages_of_large_objects_shrink_until_they_fit() {
    let (server, fit) = (Server::with(vec![1_250_000; 60]), fit());
    let asked = server.list(&fit).await;
    assert_eq!(asked[..3], [64, 16, 4], "given up as they came");
    assert!(asked[4..].iter().all(|size| *size <= 4), "{asked:?}");
    let again = server.list(&fit).await;
    assert!(
        again.iter().all(|size| *size <= 4),
        "it is known by now: {again:?}"
    );
}

#[tokio::test]
async fn pages_grow_again_behind_large_objects() {
    let mut lengths = vec![1_250_000; 20];
    lengths.extend(vec![100; MANY]);
    let asked = Server::with(lengths).list(&fit()).await;
    assert_eq!(asked.last(), Some(&PAGE), "{asked:?}");
    assert!(asked.len() < 50, "{asked:?}");
}

#[tokio::test]
async fn a_page_of_one_object_may_be_as_long_as_the_object() {
    let server = Server::with(vec![LONGEST + 1, 10, LONGEST + 1]);
    let asked = server.list(&fit()).await;
    assert!(
        asked.iter().filter(|size| **size == 1).count() >= 2,
        "{asked:?}"
    );
}

#[tokio::test]
async fn an_object_beyond_every_bound_is_an_error() {
    let maps: Api<ConfigMap> =
        Api::default_namespaced(Server::with(vec![LONGEST_OF_ONE]).client(&fit()));
    let error = lists::each(&maps, &ListParams::default(), drop)
        .await
        .unwrap_err();
    assert!(
        format!("{error:?}").contains("more than 16777216 bytes"),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_smaller_limit_of_the_caller_stays() {
    let server = Server::with(vec![100; MANY]);
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client(&fit()));
    assert!(lists::any(&maps).await.unwrap());
    assert_eq!(*server.asked.lock().unwrap(), [1]);
}

#[tokio::test]
async fn few_long_pages_are_in_memory_at_one_time() {
    let fit = fit();
    let page = || {
        let body = Full::new(Bytes::from(vec![b'x'; FREE + 1]));
        let turns = Arc::clone(&fit.pages.turns);
        async move { take_in(body, LONGEST, &turns).await.unwrap().unwrap() }
    };
    let mut pages = Vec::new();
    for _ in 0..AT_ONCE {
        pages.push(page().await);
    }
    let mut further = Box::pin(page());
    assert!(futures::poll!(&mut further).is_pending());
    let short = take_in(Full::new(Bytes::from("short")), LONGEST, &fit.pages.turns);
    short.await.unwrap().unwrap();
    pages.pop();
    further.await;
}

#[tokio::test]
async fn an_answer_that_is_no_page_passes() {
    let refusing = service_fn(|_: Request<Body>| async {
        let mut answer = Response::new(Body::from(b"gone".to_vec()));
        *answer.status_mut() = http::StatusCode::GONE;
        Ok::<_, BoxError>(answer)
    });
    for path in ["/api/v1/pods?limit=500", "/api/v1/pods?watch=true"] {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let answer = fit().layer(refusing).oneshot(request).await.unwrap();
        assert_eq!(answer.status(), http::StatusCode::GONE);
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "gone");
    }
}

/// An API server whose ConfigMaps are as long as their names say.
fn with_maps(fit: &Fit) -> Api<ConfigMap> {
    let service = service_fn(|request: Request<Body>| async move {
        let name = request.uri().path().rsplit('/').next().unwrap();
        let filling = "x".repeat(name.parse().unwrap());
        let map = json!({"metadata": {"name": name}, "data": {"more": filling}});
        Ok::<_, BoxError>(Response::new(Body::from(map.to_string().into_bytes())))
    });
    Api::default_namespaced(Client::new(fit.layer(service), "db"))
}

#[tokio::test(start_paused = true)]
async fn who_reads_large_objects_has_no_more_of_them_than_there_is_room_for() {
    const LARGE: &str = "1400000";
    let (room, maps) = (room::Room::default(), with_maps(&fit()));
    let reads = async |names: &[&str]| {
        let mut read = Vec::new();
        for name in names {
            match maps.get(name).await {
                Ok(map) => read.push(map),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(read.len())
    };
    let own = room.account(reads(&[LARGE; 6])).await;
    assert!(own.unwrap_err().contains("more than 8 MiB"));
    assert_eq!(room.account(reads(&[LARGE; 5])).await, Ok(5));
    assert_eq!(reads(&[LARGE; 6]).await, Ok(6), "outside of an account");

    let crowd = (0..10).map(|_| {
        Box::pin(room.account(async {
            let read = reads(&[LARGE; 5]).await;
            if read.is_ok() {
                std::future::pending::<()>().await;
            }
            read
        }))
    });
    let mut crowd: Vec<_> = crowd.collect();
    let wait = tokio::time::timeout(
        Duration::from_secs(5),
        futures::future::join_all(&mut crowd),
    );
    assert!(wait.await.is_err(), "nobody got its objects");
    let small = room.account(reads(&["1000"; 50])).await;
    assert_eq!(small, Ok(50), "beside a crowd");
    drop(crowd);
    assert_eq!(room.account(reads(&[LARGE; 5])).await, Ok(5));
}
