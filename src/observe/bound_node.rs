//! The node to which a pod is bound by its spec, whatever the scheduler chose.

use k8s_openapi::api::core::v1::{Affinity, NodeSelectorRequirement, NodeSelectorTerm, PodSpec};

/// Whether every pod with this spec has to run on one node. The node that the scheduler chose for
/// one pod binds no other.
pub(super) fn is_bound_to_a_node(spec: &PodSpec) -> bool {
    const HOSTNAME: &str = "kubernetes.io/hostname";
    let selects = spec.node_selector.as_ref();
    let selects = selects.is_some_and(|labels| labels.contains_key(HOSTNAME));
    let by_label = |term: &NodeSelectorTerm| {
        let mut labels = term.match_expressions.iter().flatten();
        labels
            .find_map(|label| only_value(label, HOSTNAME))
            .is_some()
    };
    let by_label = match required_terms(spec) {
        [term] => by_label(term),
        _ => false,
    };
    selects || by_label || bound_node(spec).is_some()
}

/// The node to which a pod with this spec is bound by its name.
pub(super) fn bound_node(spec: &PodSpec) -> Option<&str> {
    let terms = required_terms(spec).iter();
    let mut nodes = terms.map(|term| {
        let mut fields = term.match_fields.iter().flatten();
        fields.find_map(|field| only_value(field, NODE_NAME))
    });
    let first = nodes.next()??;
    nodes.all(|node| node == Some(first)).then_some(first)
}

/// The field of a node that has its name.
const NODE_NAME: &str = "metadata.name";

fn required_terms(spec: &PodSpec) -> &[NodeSelectorTerm] {
    let affinity = spec.affinity.as_ref();
    let affinity = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| {
        let required = &affinity.required_during_scheduling_ignored_during_execution;
        required.as_ref()
    });
    required.map_or(&[], |required| &required.node_selector_terms)
}

/// The value that a requirement allows for `key`, if it allows only one.
fn only_value<'a>(requirement: &'a NodeSelectorRequirement, key: &str) -> Option<&'a str> {
    let values = requirement.values.as_deref().unwrap_or_default();
    match values {
        [one] if requirement.key == key && requirement.operator == "In" => Some(one),
        _ => None,
    }
}

/// The affinity of a pod with this spec that is bound to a node besides.
pub fn bound_to(spec: &PodSpec, node: &str) -> Affinity {
    let mut affinity = spec.affinity.clone().unwrap_or_default();
    let of_nodes = affinity.node_affinity.get_or_insert_default();
    let required = &mut of_nodes.required_during_scheduling_ignored_during_execution;
    let terms = &mut required.get_or_insert_default().node_selector_terms;
    if terms.is_empty() {
        terms.push(NodeSelectorTerm::default());
    }
    for term in terms {
        let fields = term.match_fields.get_or_insert_default();
        fields.push(NodeSelectorRequirement {
            key: NODE_NAME.to_owned(),
            operator: "In".to_owned(),
            values: Some(vec![node.to_owned()]),
        });
    }
    affinity
}
