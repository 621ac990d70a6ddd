//! The dashboard of the chart asks for metrics and labels that exist. `make alerts` has promtool
//! check its expressions.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::alerts::selectors;
use crate::metrics::Known;

fn dashboard() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/quorumgate/dashboard.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn panels(dashboard: &Value) -> Vec<&Value> {
    let all = dashboard["panels"].as_array().unwrap().iter();
    all.filter(|panel| panel["type"] != "row").collect()
}

#[test]
fn every_panel_asks_for_metrics_and_labels_that_exist() {
    let known = Known::read().series();
    let dashboard = dashboard();
    let mut asked = BTreeSet::new();
    for panel in panels(&dashboard) {
        let title = panel["title"].as_str().unwrap();
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{title} shows nothing");
        for target in targets {
            let selectors = selectors(target["expr"].as_str().unwrap());
            assert!(!selectors.is_empty(), "{title} asks for nothing");
            for (metric, labels) in selectors {
                let has = known.get(&metric);
                let has = has.unwrap_or_else(|| panic!("{title}: there is no metric {metric}"));
                for (label, _) in labels {
                    assert!(
                        has.contains(&label),
                        "{title}: {metric} has no label {label}"
                    );
                }
                asked.insert(metric);
            }
        }
    }
    assert!(asked.len() > 15, "{asked:?}");
}

#[test]
fn every_panel_is_described_and_has_a_place_of_its_own() {
    let dashboard = dashboard();
    assert_eq!(dashboard["uid"], "quorumgate");
    let mut taken = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in panels(&dashboard) {
        let title = panel["title"].as_str().unwrap();
        let description = panel["description"].as_str().unwrap();
        assert!(description.len() > 20, "{title} is not described");
        assert!(
            ids.insert(panel["id"].as_i64()),
            "{title} has the id of another"
        );
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        let at = |field: &str| panel["gridPos"][field].as_i64().unwrap();
        for x in at("x")..at("x") + at("w") {
            assert!(x < 24, "{title} is out of the grid");
            for y in at("y")..at("y") + at("h") {
                assert!(taken.insert((x, y)), "{title} covers another panel");
            }
        }
    }
}
