use super::*;

pub(in crate::reachability) fn myself(pod: &str, address: &str) -> Myself {
    Myself {
        namespace: "quorumgate".into(),
        service: "quorumgate".into(),
        pod: pod.into(),
        uid: format!("uid-of-{pod}"),
        address: address.parse().unwrap(),
        node: Some("node-1".into()),
        webhooks: 8443,
        admin: 8080,
    }
}

fn webhooks(slice: &EndpointSlice) -> Option<SocketAddr> {
    address(slice, slice.endpoints.first()?)
}

#[test]
fn a_slice_is_owned_by_its_pod_and_shows_where_it_answers() {
    let me = myself("gate-a", "10.0.0.7");
    let slice = me.slice(OwnState::In);
    assert_eq!(slice.address_type, "IPv4");
    assert_eq!(slice.owner_references()[0].uid, "uid-of-gate-a");
    assert_eq!(slice.labels()[SERVICE], "quorumgate");
    assert_eq!(place(&slice), Some(EndpointState::In));
    assert_eq!(webhooks(&slice), Some("10.0.0.7:8443".parse().unwrap()));
    let six = myself("gate-a", "fd00::7").slice(OwnState::In);
    assert_eq!(six.address_type, "IPv6");
    assert_eq!(webhooks(&six), Some("[fd00::7]:8443".parse().unwrap()));
}

#[test]
fn a_struck_slice_differs_from_what_its_replica_says() {
    let me = myself("gate-a", "10.0.0.7");
    let slice = me.slice(OwnState::In);
    assert!(me.is_current(&slice, OwnState::In));
    let struck = struck(slice.clone());
    assert_eq!(place(&struck), Some(EndpointState::Out));
    assert!(!me.is_current(&struck, OwnState::In));
    assert!(me.is_current(&struck, OwnState::Out));
    // An earlier pod of the same name had this slice.
    let successor = Myself {
        uid: "another".into(),
        ..me
    };
    assert!(!successor.is_current(&slice, OwnState::In));
}

#[test]
fn one_that_leaves_is_called_where_nobody_else_is_ready() {
    let slice = myself("gate-a", "10.0.0.7").slice(OwnState::Leaving);
    let conditions = slice.endpoints[0].conditions.clone().unwrap();
    assert_eq!(
        (conditions.ready, conditions.serving, conditions.terminating),
        (Some(false), Some(true), Some(true))
    );
}

#[test]
fn one_that_knocks_is_known_by_its_slice_until_it_is_turned_away_or_returns() {
    let me = myself("gate-a", "10.0.0.7");
    let mut slice = me.slice(OwnState::Knocking);
    assert!(!me.is_current(&slice, OwnState::Knocking));
    slice.annotations_mut().insert(KNOCKS.into(), "now".into());
    assert!(me.is_current(&slice, OwnState::Knocking));
    assert!(!me.is_current(&slice, OwnState::Out));
    assert_eq!(place(&slice), Some(EndpointState::Knocks));
    let away = struck(slice);
    assert_eq!(place(&away), Some(EndpointState::Out));
    assert!(me.is_current(&away, OwnState::Out));
}

#[test]
fn a_slice_without_endpoints_says_nothing_of_its_replica() {
    let mut slice = myself("gate-a", "10.0.0.7").slice(OwnState::In);
    slice.endpoints.clear();
    assert_eq!(place(&slice), None);
}

#[test]
fn slices_are_known_by_who_made_them() {
    let mut slice = myself("gate-a", "10.0.0.7").slice(OwnState::In);
    assert_eq!(writer_of(&slice), SliceWriter::Replica);
    let managed_by = MANAGED_BY.to_owned();
    slice.labels_mut().insert(managed_by, MIRROR.to_owned());
    assert_eq!(writer_of(&slice), SliceWriter::Mirror);
    slice.labels_mut().remove(MANAGED_BY);
    assert_eq!(writer_of(&slice), SliceWriter::Other);
}
