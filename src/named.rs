//! Reads of single objects. Their names become part of a URL here, and nowhere else.
//!
//! Many names were written by others: in a budget, in a pod, in a claim, in an owner reference. A
//! name such as `../../kube-system/secrets/x` or `x?resourceVersion=0` would ask for something
//! else. So each name is checked, and one that Kubernetes gives to no object is never sent.

use std::fmt::Debug;

use kube::api::PartialObjectMeta;
use kube::core::request;
use kube::{Api, Error};
use serde::de::DeserializeOwned;

use crate::api::dns;

/// The field of a name that the API server gave, or that is an option of the gate.
pub(crate) const OF_OBJECT: &str = "metadata.name";

/// Reads an object. The name is that in `field`, which an error names.
#[expect(clippy::disallowed_methods, reason = "the name is checked here")]
pub(crate) async fn get<K>(api: &Api<K>, field: &str, name: &str) -> Result<K, Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    api.get(checked(field, name)?).await
}

/// Reads an object, if it exists.
#[expect(clippy::disallowed_methods, reason = "the name is checked here")]
pub(crate) async fn get_opt<K>(api: &Api<K>, field: &str, name: &str) -> Result<Option<K>, Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    api.get_opt(checked(field, name)?).await
}

/// Reads the metadata of an object.
#[expect(clippy::disallowed_methods, reason = "the name is checked here")]
pub(crate) async fn get_metadata<K>(
    api: &Api<K>,
    field: &str,
    name: &str,
) -> Result<PartialObjectMeta<K>, Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    api.get_metadata(checked(field, name)?).await
}

/// Reads the metadata of an object, if it exists.
#[expect(clippy::disallowed_methods, reason = "the name is checked here")]
pub(crate) async fn get_metadata_opt<K>(
    api: &Api<K>,
    field: &str,
    name: &str,
) -> Result<Option<PartialObjectMeta<K>>, Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    api.get_metadata_opt(checked(field, name)?).await
}

fn checked<'n>(field: &str, name: &'n str) -> Result<&'n str, Error> {
    if dns::is_subdomain(name) {
        return Ok(name);
    }
    let no_name = format!("{field}: {name:?} is no name of an object");
    Err(Error::BuildRequest(request::Error::Validation(no_name)))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;

    use super::*;
    use crate::causes::causes;
    use crate::fake_api::FakeApi;

    #[tokio::test]
    async fn a_name_that_means_something_else_in_a_url_is_never_sent() {
        let api = FakeApi::default();
        let secrets: Api<Secret> = Api::namespaced(api.client(), "db");
        for name in [
            "../../kube-system/secrets/x",
            "x?resourceVersion=0",
            "x/status",
            "x#",
            "x%2f",
            "..",
            "",
        ] {
            let field = "spec.members.auth.secret.name";
            let errors = [
                get(&secrets, field, name).await.unwrap_err(),
                get_opt(&secrets, field, name).await.unwrap_err(),
                get_metadata(&secrets, field, name).await.unwrap_err(),
                get_metadata_opt(&secrets, field, name).await.unwrap_err(),
            ];
            for error in errors {
                let said = causes(&error);
                assert!(said.contains(&format!("{field}: {name:?}")), "{said}");
            }
        }
        assert_eq!(api.take_requests(), Vec::<String>::new());
        assert!(
            get_opt(&secrets, "", "etcd.client-0")
                .await
                .unwrap()
                .is_none()
        );
        assert_eq!(api.take_requests().len(), 1);
    }
}
