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

#[test]
fn a_slice_is_owned_by_its_pod_and_shows_where_it_answers() {
    let me = myself("gate-a", "10.0.0.7");
    let slice = me.slice(Standing::In);
    assert_eq!(slice.address_type, "IPv4");
    assert_eq!(slice.owner_references()[0].uid, "uid-of-gate-a");
    assert_eq!(slice.labels()[SERVICE], "quorumgate");
    assert!(is_in(&slice));
    assert_eq!(webhooks_of(&slice), Some("10.0.0.7:8443".parse().unwrap()));
    let six = myself("gate-a", "fd00::7").slice(Standing::In);
    assert_eq!(six.address_type, "IPv6");
    assert_eq!(webhooks_of(&six), Some("[fd00::7]:8443".parse().unwrap()));
}

#[test]
fn a_struck_slice_differs_from_what_its_replica_says() {
    let me = myself("gate-a", "10.0.0.7");
    let slice = me.slice(Standing::In);
    assert!(me.is_said_by(&slice, Standing::In));
    let struck = struck(slice.clone());
    assert!(!is_in(&struck));
    assert!(!me.is_said_by(&struck, Standing::In));
    assert!(me.is_said_by(&struck, Standing::Out));
    // A pod of the same name was there before.
    let successor = Myself {
        uid: "another".into(),
        ..me
    };
    assert!(!successor.is_said_by(&slice, Standing::In));
}

#[test]
fn one_that_leaves_is_called_where_nobody_else_is_ready() {
    let slice = myself("gate-a", "10.0.0.7").slice(Standing::Leaving);
    let conditions = slice.endpoints[0].conditions.clone().unwrap();
    assert_eq!(
        (conditions.ready, conditions.serving, conditions.terminating),
        (Some(false), Some(true), Some(true))
    );
}

#[test]
fn slices_that_no_replica_made_are_nobody_to_probe() {
    let mut slice = myself("gate-a", "10.0.0.7").slice(Standing::In);
    slice.labels_mut().remove(MANAGED_BY);
    assert_eq!(webhooks_of(&slice), None);
}
