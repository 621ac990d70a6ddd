//! Which object a review is about: what the request says, and what the object in it says, which must not differ.

use super::malformed::Malformed;
use super::review::{Metadata, Request};

/// Namespace and name of the object, from the request, or else from the object in it.
pub(super) fn of<Object, Managers>(
    request: &Request<Object>,
    object: &Metadata<Managers>,
) -> Result<(String, String), Malformed> {
    let namespace = agreed(&request.namespace, &object.namespace)
        .map_err(|()| request.incomplete("names two namespaces"))?
        .ok_or_else(|| request.incomplete("names no namespace"))?;
    let name = agreed(&request.name, &object.name)
        .map_err(|()| request.incomplete("names two objects"))?
        .ok_or_else(|| request.incomplete("names no object"))?;
    Ok((namespace, name))
}

fn agreed(one: &str, other: &str) -> Result<Option<String>, ()> {
    match (one, other) {
        ("", "") => Ok(None),
        (said, "") | ("", said) => Ok(Some(said.to_owned())),
        (one, other) if one == other => Ok(Some(one.to_owned())),
        _ => Err(()),
    }
}
