use serde_json::json;

use super::super::slice::tests::myself;
use super::super::slice::{OwnState, SERVICE};
use super::*;

const CONTROLLER: &str = "endpointslice-controller.k8s.io";
const MIRROR: &str = "endpointslicemirroring-controller.k8s.io";

/// A slice of one of Kubernetes' controllers with these endpoints, each with its readiness.
fn of(manager: &str, endpoints: &[(&str, bool)]) -> EndpointSlice {
    let endpoints = endpoints
        .iter()
        .map(|(address, ready)| json!({"addresses": [address], "conditions": {"ready": ready}}));
    serde_json::from_value(json!({
        "metadata": {
            "name": format!("of-{manager}"),
            "labels": {SERVICE: "quorumgate", "endpointslice.kubernetes.io/managed-by": manager},
        },
        "addressType": "IPv4",
        "endpoints": endpoints.collect::<Vec<_>>(),
        "ports": [{"name": "webhooks", "port": 8443}, {"name": "metrics", "port": 8080}],
    }))
    .unwrap()
}

fn replica(address: &str, standing: OwnState) -> EndpointSlice {
    myself(&format!("gate-{address}"), address).slice(standing)
}

fn at(addresses: &[&str]) -> BTreeSet<SocketAddr> {
    let address = |address: &&str| SocketAddr::new(address.parse().unwrap(), 8443);
    addresses.iter().map(address).collect()
}

/// The addresses left in each slice that is written, and whether the Endpoints are deleted.
fn left(
    writer: EndpointWriter,
    listed: &[EndpointSlice],
    lost: &[&str],
) -> (Vec<BTreeSet<SocketAddr>>, bool) {
    let mut slices = Vec::new();
    let mut endpoints = false;
    for change in cleanups(writer, listed, &at(lost)) {
        match change {
            Cleanup::Slice(slice) => slices.push(addresses_of(&slice).collect()),
            Cleanup::Endpoints => endpoints = true,
        }
    }
    (slices, endpoints)
}

#[test]
fn a_service_without_a_selector_is_the_replicas_to_keep() {
    let writer = |spec| {
        EndpointWriter::from_service(&serde_json::from_value(json!({ "spec": spec })).unwrap())
    };
    assert_eq!(writer(json!({})), EndpointWriter::Replicas);
    assert_eq!(writer(json!({"selector": {}})), EndpointWriter::Replicas);
    assert_eq!(
        writer(json!({"selector": {"a": "b"}})),
        EndpointWriter::Selector
    );
}

#[test]
fn unkept_is_what_is_called_and_has_no_slice_of_a_replica() {
    let listed = [
        of(
            CONTROLLER,
            &[("10.0.0.1", true), ("10.0.0.2", true), ("10.0.0.3", false)],
        ),
        of(MIRROR, &[("10.0.0.4", true)]),
        replica("10.0.0.2", OwnState::Out),
    ];
    assert_eq!(addresses_left_over(&listed), at(&["10.0.0.1", "10.0.0.4"]));
}

#[test]
fn without_a_selector_what_replicas_keep_and_what_is_lost_goes_from_other_slices() {
    let listed = [
        of(
            CONTROLLER,
            &[("10.0.0.1", true), ("10.0.0.2", true), ("10.0.0.3", false)],
        ),
        replica("10.0.0.2", OwnState::In),
        // This replica's own slice says that it is not ready: a slice that says otherwise is wrong.
        replica("10.0.0.3", OwnState::Out),
    ];
    let (slices, _) = left(EndpointWriter::Replicas, &listed, &[]);
    assert_eq!(slices, [at(&["10.0.0.1"])]);
    let (slices, _) = left(EndpointWriter::Replicas, &listed, &["10.0.0.1"]);
    assert_eq!(slices, [at(&[])]);
    let nothing = (Vec::new(), false);
    assert_eq!(left(EndpointWriter::Replicas, &listed[1..], &[]), nothing);
    assert_eq!(
        left(
            EndpointWriter::Replicas,
            &[of(CONTROLLER, &[("10.0.0.9", true)])],
            &[]
        ),
        nothing
    );
}

#[test]
fn with_a_selector_replicas_withdraw_what_kubernetes_lists_and_nothing_else() {
    let ours = [
        replica("10.0.0.1", OwnState::In),
        replica("10.0.0.2", OwnState::In),
    ];
    let listing = |slice| [slice, ours[0].clone(), ours[1].clone()];
    // Ready or not: with a selector, the kubelets decide that.
    let listed = listing(of(CONTROLLER, &[("10.0.0.1", false)]));
    let (slices, _) = left(EndpointWriter::Selector, &listed, &[]);
    assert_eq!(slices, [at(&[])]);
    // Mirrored slices are removed by their own controller, and take the place of no other.
    let listed = listing(of(MIRROR, &[("10.0.0.1", true)]));
    assert_eq!(
        left(EndpointWriter::Selector, &listed, &[]),
        (Vec::new(), false)
    );
}

#[test]
fn the_mirrored_endpoints_go_as_a_whole_and_not_while_one_that_may_live_stands_only_there() {
    let mirror = of(MIRROR, &[("10.0.0.1", true), ("10.0.0.2", true)]);
    let ours = replica("10.0.0.9", OwnState::In);
    let listed = [mirror.clone(), ours.clone()];
    assert_eq!(
        left(EndpointWriter::Replicas, &listed, &[]),
        (Vec::new(), false)
    );
    assert_eq!(
        left(EndpointWriter::Replicas, &listed, &["10.0.0.1"]),
        (Vec::new(), false)
    );
    let both = ["10.0.0.1", "10.0.0.2"];
    assert_eq!(
        left(EndpointWriter::Replicas, &listed, &both),
        (Vec::new(), true)
    );
    // The other one is in another slice too, and stays there.
    let other = of(CONTROLLER, &[("10.0.0.1", true), ("10.0.0.2", true)]);
    let listed = [mirror, other, ours];
    let (slices, endpoints) = left(EndpointWriter::Replicas, &listed, &["10.0.0.1"]);
    assert_eq!((slices, endpoints), (vec![at(&["10.0.0.2"])], true));
}
