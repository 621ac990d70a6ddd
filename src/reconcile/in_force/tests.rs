use super::*;

/// The configurations as they are shipped, with UIDs as if they had been applied.
fn shipped() -> (ValidatingWebhookConfiguration, MutatingWebhookConfiguration) {
    let manifest = include_str!("../../../manifests/base/webhooks.yaml");
    let (first, second) = manifest.split_once("\n---\n").unwrap();
    let mut validating: ValidatingWebhookConfiguration = serde_saphyr::from_str(first).unwrap();
    let mut mutating: MutatingWebhookConfiguration = serde_saphyr::from_str(second).unwrap();
    validating.metadata.uid = Some("v".into());
    mutating.metadata.uid = Some("m".into());
    // The gate writes the paths.
    for hook in validating.webhooks.iter_mut().flatten() {
        let service = hook.client_config.service.as_mut().unwrap();
        service.path = Some(format!("{}/0123", call_path::validating(&hook.name)));
    }
    for hook in mutating.webhooks.iter_mut().flatten() {
        let service = hook.client_config.service.as_mut().unwrap();
        service.path = Some(format!("{}/0123", call_path::mutating(&hook.name)));
    }
    (validating, mutating)
}

fn namespace(name: &str, gated: bool) -> Namespace {
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(name.into());
    let labels = namespace.labels_mut();
    labels.insert("kubernetes.io/metadata.name".into(), name.into());
    if gated {
        labels.insert(names::GATED.into(), names::TRUE.into());
    }
    namespace
}

fn standing(
    namespace: &Namespace,
    (validating, mutating): &(ValidatingWebhookConfiguration, MutatingWebhookConfiguration),
) -> Result<String, OutOfForce> {
    WebhookSetup {
        namespace: Some(namespace),
        validating: Some(validating),
        mutating: Some(mutating),
    }
    .in_force_by()
}

#[test]
fn the_shipped_configurations_are_in_force_in_a_labelled_namespace_and_nowhere_else() {
    let shipped = shipped();
    assert_eq!(standing(&namespace("a", true), &shipped), Ok("v,m".into()));
    let unlabelled = standing(&namespace("a", false), &shipped);
    assert_eq!(unlabelled, Err(OutOfForce::NotGated));
    for exempt in ["kube-system", "quorumgate"] {
        let exempt = standing(&namespace(exempt, true), &shipped);
        assert_eq!(exempt, Err(OutOfForce::NotSelected("/validate/pods")));
    }
}

/// A configuration may be changed so that the API server asks nobody, and back again while no
/// replica runs. Only its generation shows that.
#[test]
fn a_configuration_that_was_changed_and_changed_back_is_another_one() {
    let mut shipped = shipped();
    let namespace = namespace("a", true);
    (shipped.0.metadata.generation, shipped.1.metadata.generation) = (Some(5), Some(3));
    let before = standing(&namespace, &shipped);
    assert_eq!(before, Ok("v@5,m@3".into()));
    shipped.0.metadata.generation = Some(7);
    assert_ne!(standing(&namespace, &shipped), before);
    assert!(identity_in_force(&shipped.0, &shipped.1).is_some());
    for hook in shipped.0.webhooks.iter_mut().flatten() {
        hook.failure_policy = Some("Ignore".into());
    }
    assert_eq!(identity_in_force(&shipped.0, &shipped.1), None);
}

#[test]
fn a_missing_configuration_is_out_of_force() {
    let (validating, _) = shipped();
    let without = WebhookSetup {
        namespace: Some(&namespace("a", true)),
        validating: Some(&validating),
        mutating: None,
    };
    let kind = "MutatingWebhookConfiguration";
    assert_eq!(
        without.in_force_by(),
        Err(OutOfForce::NoConfiguration(kind))
    );
}

#[test]
fn a_hook_that_fails_open_is_out_of_force() {
    let mut shipped = shipped();
    let hooks = shipped.0.webhooks.as_mut().unwrap();
    hooks[1].failure_policy = Some("Ignore".into());
    let found = standing(&namespace("a", true), &shipped);
    assert_eq!(found, Err(OutOfForce::NoHook("/validate/evictions")));
}

#[test]
fn a_hook_without_its_rule_is_out_of_force() {
    let mut shipped = shipped();
    let hooks = shipped.0.webhooks.as_mut().unwrap();
    hooks[0].rules.as_mut().unwrap()[0].operations = Some(vec!["UPDATE".into()]);
    let found = standing(&namespace("a", true), &shipped);
    assert_eq!(found, Err(OutOfForce::NoHook("/validate/pods")));
}

#[test]
fn restarts_in_place_must_be_asked_about_too() {
    let mut shipped = shipped();
    let hooks = shipped.0.webhooks.as_mut().unwrap();
    let restarts = hooks
        .iter_mut()
        .find(|hook| hook.name.starts_with("restarts."));
    let rules = restarts.unwrap().rules.as_mut().unwrap();
    rules[0].resources = Some(vec!["pods".into()]);
    let found = standing(&namespace("a", true), &shipped);
    assert_eq!(found, Err(OutOfForce::NoHook("/validate/restarts")));
}

#[test]
fn hooks_may_be_registered_by_url() {
    let mut shipped = shipped();
    for hook in shipped.0.webhooks.iter_mut().flatten() {
        let path = hook.client_config.service.take().unwrap().path.unwrap();
        hook.client_config.url = Some(format!("https://127.0.0.1:8443{path}?timeout=5s"));
    }
    assert_eq!(standing(&namespace("a", true), &shipped), Ok("v,m".into()));
}

#[test]
fn a_hook_that_looks_at_labels_of_the_object_is_out_of_force() {
    let mut shipped = shipped();
    let hooks = shipped.0.webhooks.as_mut().unwrap();
    let labels = [("app".to_owned(), "etcd".to_owned())];
    hooks[1].object_selector = Some(LabelSelector {
        match_labels: Some(labels.into()),
        match_expressions: None,
    });
    let found = standing(&namespace("a", true), &shipped);
    assert_eq!(found, Err(OutOfForce::NoHook("/validate/evictions")));
}

#[test]
fn a_hook_for_another_group_is_out_of_force() {
    let mut shipped = shipped();
    let hooks = shipped.0.webhooks.as_mut().unwrap();
    hooks[0].rules.as_mut().unwrap()[0].api_groups = Some(vec!["apps".into()]);
    let found = standing(&namespace("a", true), &shipped);
    assert_eq!(found, Err(OutOfForce::NoHook("/validate/pods")));
}

#[test]
fn a_condition_that_is_not_the_gates_is_out_of_force_and_one_less_is_not() {
    let (mut validating, mutating) = shipped();
    let conditions = |hooks: &mut ValidatingWebhookConfiguration, at: usize| {
        hooks.webhooks.as_mut().unwrap()[at]
            .match_conditions
            .take()
            .unwrap()
    };
    let mut edited = conditions(&mut validating, 0);
    let removed = edited.remove(0);
    validating.webhooks.as_mut().unwrap()[0].match_conditions = Some(edited.clone());
    let gated = namespace("a", true);
    let pair = (validating.clone(), mutating.clone());
    assert_eq!(standing(&gated, &pair), Ok("v,m".into()), "it asks more");
    edited.push(MatchCondition {
        expression: format!("{} && request.name != 'etcd-0'", removed.expression),
        name: "mine".into(),
    });
    validating.webhooks.as_mut().unwrap()[0].match_conditions = Some(edited);
    let narrowed = standing(&gated, &(validating, mutating));
    let expected = OutOfForce::Narrowed {
        path: "/validate/pods",
        condition: "mine".into(),
    };
    assert_eq!(narrowed, Err(expected));
}

#[test]
fn deletes_and_scale_ins_of_stateful_sets_must_be_asked_about_too() {
    let path = "/validate/statefulsets";
    let (mut validating, mutating) = shipped();
    let hook = |validating: &mut ValidatingWebhookConfiguration| {
        let hooks = validating.webhooks.as_mut().unwrap();
        let at = hooks
            .iter()
            .position(|h| h.name.starts_with("statefulsets."));
        hooks.remove(at.unwrap())
    };
    let mut open = hook(&mut validating);
    let gated = namespace("a", true);
    let without = standing(&gated, &(validating.clone(), mutating.clone()));
    assert_eq!(without, Err(OutOfForce::NoHook(path)));
    open.failure_policy = Some("Ignore".into());
    validating.webhooks.as_mut().unwrap().push(open);
    let fails_open = standing(&gated, &(validating, mutating));
    assert_eq!(fails_open, Err(OutOfForce::NoHook(path)));
}

#[test]
fn one_of_the_gates_conditions_on_a_hook_that_it_is_not_for_is_out_of_force() {
    let (mut validating, mutating) = shipped();
    let hooks = validating.webhooks.as_mut().unwrap();
    let of_restarts = hooks.iter().find(|h| h.name.starts_with("restarts."));
    let of_restarts = of_restarts.unwrap().match_conditions.clone().unwrap();
    let elsewhere = of_restarts.last().unwrap().clone();
    let name = elsewhere.name.clone();
    hooks[0]
        .match_conditions
        .get_or_insert_default()
        .push(elsewhere);
    let narrowed = standing(&namespace("a", true), &(validating, mutating));
    let expected = OutOfForce::Narrowed {
        path: "/validate/pods",
        condition: name,
    };
    assert_eq!(narrowed, Err(expected));
}

/// A webhook that selects the namespace asks, whichever webhook is listed before it.
#[test]
fn of_two_hooks_on_one_path_one_that_asks_everything_is_enough_and_a_narrowed_one_is_not() {
    let (mut validating, mutating) = shipped();
    let hooks = validating.webhooks.as_mut().unwrap();
    let mut second = hooks[0].clone();
    second.match_conditions = Some(vec![MatchCondition {
        expression: "false".into(),
        name: "never".into(),
    }]);
    let elsewhere = LabelSelector {
        match_labels: Some([("team".to_owned(), "other".to_owned())].into()),
        match_expressions: None,
    };
    hooks.insert(0, second);
    let gated = namespace("a", true);
    let both = (validating.clone(), mutating.clone());
    assert_eq!(standing(&gated, &both), Ok("v,m".into()));
    let whole = &mut validating.webhooks.as_mut().unwrap()[1];
    whole.namespace_selector = Some(elsewhere);
    let expected = OutOfForce::Narrowed {
        path: "/validate/pods",
        condition: "never".into(),
    };
    assert_eq!(standing(&gated, &(validating, mutating)), Err(expected));
}
