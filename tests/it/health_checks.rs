//! The health checks for Argo CD and Flux in docs/install.md, run on objects as the gate writes
//! them.

use std::path::Path;

use mlua::{Lua, LuaSerdeExt as _};
use serde_json::{Value, json};

const NO_STATUS: &str = "no status";

fn page() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/install.md");
    std::fs::read_to_string(page).unwrap()
}

/// The block of YAML that has this text.
fn block(with: &str) -> String {
    let page = page();
    let mut blocks = page.split("```yaml\n").skip(1);
    let found = blocks.find_map(|block| {
        let (block, _) = block.split_once("```")?;
        block.contains(with).then(|| block.to_owned())
    });
    found.unwrap()
}

/// The status that Argo CD shows of an object.
fn argo(kind: &str, object: &Value) -> String {
    let checks: Value = serde_saphyr::from_str(&block("customizations.health")).unwrap();
    let check = &checks[format!("resource.customizations.health.quorumgate.io_{kind}")];
    let lua = Lua::new();
    let object = lua.to_value(object).unwrap();
    lua.globals().set("obj", object).unwrap();
    let health: mlua::Table = lua.load(check.as_str().unwrap()).eval().unwrap();
    assert!(health.contains_key("message").unwrap());
    health.get("status").unwrap()
}

/// The status that Flux shows of an object: the first expression that is true, in this order. An
/// expression that cannot be evaluated is asked again.
fn flux(kind: &str, object: &Value) -> &'static str {
    let spec: Value = serde_saphyr::from_str(&block("healthCheckExprs")).unwrap();
    let mut checks = spec["spec"]["healthCheckExprs"].as_array().unwrap().iter();
    let check = checks.find(|check| check["kind"] == kind).unwrap();
    assert_eq!(check["apiVersion"], "quorumgate.io/v1alpha1");
    let mut variables = cel::Context::default();
    for (name, value) in object.as_object().unwrap() {
        variables.add_variable(name, value).unwrap();
    }
    for (field, status) in [
        ("inProgress", "InProgress"),
        ("failed", "Failed"),
        ("current", "Current"),
    ] {
        let Some(expression) = check[field].as_str() else {
            continue;
        };
        let program = cel::Program::compile(expression).unwrap();
        match program.execute(&variables) {
            Ok(cel::Value::Bool(true)) => return status,
            Ok(cel::Value::Bool(false)) => {}
            Ok(other) => panic!("{expression} is {other:?}"),
            Err(_) => return NO_STATUS,
        }
    }
    "InProgress"
}

#[test]
fn a_budget_is_as_healthy_as_its_condition_ready_says() {
    let other = json!({"type": "GateActive", "status": "True", "message": "it is"});
    let ready = |status: &str| {
        let ready = json!({"type": "Ready", "status": status, "message": "as it is"});
        json!({"status": {"conditions": [other, ready]}})
    };
    for (object, in_argo, in_flux) in [
        (json!({}), "Progressing", NO_STATUS),
        (json!({"status": {}}), "Progressing", "InProgress"),
        (
            json!({"status": {"conditions": [other]}}),
            "Progressing",
            "InProgress",
        ),
        (ready("True"), "Healthy", "Current"),
        (ready("False"), "Degraded", "Failed"),
        (ready("Unknown"), "Progressing", "InProgress"),
    ] {
        let seen = (
            argo("QuorumDisruptionBudget", &object),
            flux("QuorumDisruptionBudget", &object),
        );
        assert_eq!((seen.0.as_str(), seen.1), (in_argo, in_flux), "{object}");
    }
}

#[test]
fn a_member_is_healthy_once_it_has_started() {
    let after = |states: &[&str]| {
        let transitions = states.iter().map(|state| {
            json!({"state": state, "reason": "Because", "transitionTime": "2026-01-01T00:00:00Z"})
        });
        json!({"status": {"transitions": transitions.collect::<Vec<_>>()}})
    };
    for (object, in_argo, in_flux) in [
        (json!({}), "Progressing", NO_STATUS),
        (json!({"status": {}}), "Progressing", "InProgress"),
        (after(&["New"]), "Progressing", "InProgress"),
        (after(&["New", "Starting"]), "Progressing", "InProgress"),
        (after(&["New", "Starting", "Started"]), "Healthy", "Current"),
        (
            after(&["Started", "Initializing"]),
            "Progressing",
            "InProgress",
        ),
    ] {
        let seen = (argo("EtcdMember", &object), flux("EtcdMember", &object));
        assert_eq!((seen.0.as_str(), seen.1), (in_argo, in_flux), "{object}");
    }
}
