//! Lists of objects, page by page, so that nobody's objects are held all at once.
//!
//! The client asks for smaller pages where objects are large (`app::fitted`). An answer may
//! therefore have fewer objects than were asked for, and every list goes on until its end.

use std::fmt::Debug;
use std::io::{self, Write};

use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::{Api, Error, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::room;

/// The most objects in a page.
pub(crate) const PAGE: u32 = 500;

/// The most bytes of the objects that one list keeps, as JSON. The pods of a large cluster take a
/// hundredth of it.
const ROOM: usize = 8 * 1024 * 1024;

/// Calls `take` with each object.
#[expect(clippy::disallowed_methods, reason = "the pages are asked for here")]
pub(crate) async fn each<K>(
    api: &Api<K>,
    which: &ListParams,
    mut take: impl FnMut(K),
) -> Result<(), Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut page = which.clone().limit(PAGE);
    loop {
        let listed = api.list(&page).await?;
        listed.items.into_iter().for_each(&mut take);
        match following(page, listed.metadata.continue_) {
            Some(next) => page = next,
            None => return Ok(()),
        }
    }
}

/// Calls `take` with the metadata of each object. The API server sends nothing else.
#[expect(clippy::disallowed_methods, reason = "the pages are asked for here")]
pub(crate) async fn each_metadata<K>(
    api: &Api<K>,
    which: &ListParams,
    mut take: impl FnMut(PartialObjectMeta<K>),
) -> Result<(), Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut page = which.clone().limit(PAGE);
    loop {
        let listed = api.list_metadata(&page).await?;
        listed.items.into_iter().for_each(&mut take);
        match following(page, listed.metadata.continue_) {
            Some(next) => page = next,
            None => return Ok(()),
        }
    }
}

/// The objects for which `keep` is true, without their managed fields. Fails as [`picked`] does.
pub(crate) async fn kept<K>(
    api: &Api<K>,
    which: &ListParams,
    keep: impl Fn(&K) -> bool,
) -> Result<Vec<K>, Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize,
{
    let pick = |mut object: K| {
        object.meta_mut().managed_fields = None;
        keep(&object).then_some(object)
    };
    picked(api, which, pick).await
}

/// The values that `pick` gives of the objects. Fails if they take more than 8 MiB: evidence that
/// is cut short would be taken for all there is.
pub(crate) async fn picked<K>(
    api: &Api<K>,
    which: &ListParams,
    pick: impl Fn(K) -> Option<K>,
) -> Result<Vec<K>, Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize,
{
    let mut picked = Vec::new();
    let mut room = Some(ROOM);
    each(api, which, |object| {
        let Some(left) = room else { return };
        if let Some(object) = pick(object) {
            room = left.checked_sub(length(&object));
            picked.push(object);
            if room.is_none() {
                picked = Vec::new();
            }
        }
    })
    .await?;
    if let Some(left) = room {
        let charged = room::charge(ROOM - left).await;
        return charged
            .map(|()| picked)
            .map_err(|why| Error::Service(why.into()));
    }
    let (kind, most) = (K::kind(&()), ROOM / (1024 * 1024));
    let too_many = format!("the objects of kind {kind} that matter take more than {most} MiB");
    Err(Error::Service(too_many.into()))
}

/// Whether there is any object.
#[expect(clippy::disallowed_methods, reason = "this is one object")]
pub(crate) async fn any<K>(api: &Api<K>) -> Result<bool, Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    let first = api.list_metadata(&ListParams::default().limit(1)).await?;
    Ok(!first.items.is_empty())
}

/// The page after this one, if there is one.
fn following(page: ListParams, token: Option<String>) -> Option<ListParams> {
    let token = token.filter(|token| !token.is_empty())?;
    Some(page.continue_token(&token))
}

/// The length of an object as JSON.
fn length(object: &impl Serialize) -> usize {
    struct Length(usize);
    impl Write for Length {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut length = Length(0);
    // What cannot be written counts as what was written of it.
    let _ = serde_json::to_writer(&mut length, object);
    length.0
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::ResourceExt as _;
    use serde_json::json;

    use super::*;
    use crate::fake_api::FakeApi;

    const PODS: &str = "/api/v1/namespaces/db/pods";

    fn with_pods(count: usize, filling: &str) -> FakeApi {
        let api = FakeApi::default();
        for number in 0..count {
            let name = format!("etcd-{number:04}");
            let meta = json!({
                "name": name, "namespace": "db", "annotations": {"more": filling},
                "managedFields": [{"manager": "kubelet"}],
            });
            api.put(
                &format!("{PODS}/{name}"),
                json!({"metadata": meta, "spec": {"containers": []}}),
            );
        }
        api
    }

    fn pods(api: &FakeApi) -> Api<Pod> {
        Api::namespaced(api.client(), "db")
    }

    #[tokio::test]
    async fn a_list_goes_on_until_its_end() {
        let api = with_pods(1201, "");
        let mut names = Vec::new();
        let (pods, every) = (pods(&api), ListParams::default());
        let all = each(&pods, &every, |pod| names.push(pod.name_any()));
        all.await.unwrap();
        assert_eq!(names.len(), 1201);
        assert!(names.is_sorted(), "each once");
        let mut count = 0;
        let all = each_metadata(&pods, &every, |_| count += 1);
        all.await.unwrap();
        assert_eq!(count, 1201);
        let asked = api.take_requests();
        assert_eq!(asked.len(), 6, "{asked:?}");
        assert!(
            asked.iter().all(|asked| asked.contains("limit=500")),
            "{asked:?}"
        );
    }

    #[tokio::test]
    async fn what_is_kept_has_no_managed_fields() {
        let api = with_pods(3, "");
        let which = ListParams::default();
        let pods = pods(&api);
        let found = kept(&pods, &which, |pod| pod.name_any() != "etcd-0001").await;
        let found = found.unwrap();
        assert_eq!(found.len(), 2);
        assert!(
            found
                .iter()
                .all(|pod| pod.metadata.managed_fields.is_none())
        );
    }

    #[tokio::test]
    async fn a_list_keeps_no_more_than_its_room_and_says_so() {
        let api = with_pods(20, &"x".repeat(ROOM / 10));
        let which = ListParams::default();
        let pods = pods(&api);
        let error = kept(&pods, &which, |_| true).await.unwrap_err();
        assert!(error.to_string().contains("Pod"), "{error}");
        assert!(error.to_string().contains("more than 8 MiB"), "{error}");
        let one = kept(&pods, &which, |pod| pod.name_any() == "etcd-0019");
        assert_eq!(one.await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn one_object_says_whether_there_is_any() {
        assert!(any(&pods(&with_pods(2, ""))).await.unwrap());
        assert!(!any(&pods(&FakeApi::default())).await.unwrap());
    }
}
