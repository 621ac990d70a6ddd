//! The files of a release name each other: what is pushed is what is pulled, and each platform has
//! its archive.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::manifests::documents;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The owner and the name of the repository.
fn repository() -> &'static str {
    let repository = env!("CARGO_PKG_REPOSITORY");
    repository.strip_prefix("https://github.com/").unwrap()
}

/// The name of the published image, without its tag.
pub(crate) fn image() -> String {
    format!("ghcr.io/{}", repository())
}

fn workflow() -> Value {
    documents(".github/workflows/release.yaml").remove(0)
}

/// The commands of a job, as one text.
fn commands(job: &Value) -> String {
    let steps = job["steps"].as_array().unwrap().iter();
    let commands = steps.filter_map(|step| step["run"].as_str());
    commands.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_chart_pulls_the_image_that_the_workflow_pushes() {
    let values = &documents("charts/quorumgate/values.yaml")[0]["image"];
    let text = |key: &str| values[key].as_str().unwrap();
    assert_eq!(
        format!("{}/{}", text("registry"), text("repository")),
        image()
    );
    // The tag is the chart's appVersion then.
    assert_eq!((text("tag"), text("digest")), ("", ""));
    let workflow = workflow();
    let pushed = workflow["env"]["IMAGE"].as_str().unwrap();
    assert_eq!(
        pushed.replace("${{ github.repository }}", repository()),
        image()
    );
    let jobs = &workflow["jobs"];
    let push = commands(&jobs["image"]);
    assert!(
        push.contains("--push --platform linux/amd64,linux/arm64"),
        "{push}"
    );
    assert!(
        push.contains(r#"--tag "$IMAGE:${GITHUB_REF_NAME#v}""#),
        "{push}"
    );
    assert!(commands(&jobs["install"]).contains(r#""$IMAGE:${GITHUB_REF_NAME#v}""#));
    let about = &documents("charts/quorumgate/Chart.yaml")[0]["annotations"];
    let listed = about["artifacthub.io/images"].as_str().unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert!(
        listed.contains(&format!("image: {}:{version}\n", image())),
        "{listed}"
    );
}

/// Nothing is drafted before the package was installed and tried.
#[test]
fn a_release_waits_for_every_file_and_for_its_installation() {
    let jobs = &workflow()["jobs"];
    let others = json!(["image", "files", "plugin", "install"]);
    assert_eq!(jobs["publish"]["needs"], others);
    assert_eq!(jobs["install"]["needs"], json!(["image", "files"]));
    let publish = commands(&jobs["publish"]);
    assert!(publish.contains("scripts/release finish --complete"));
    assert!(read("hack/on-kind").contains("make cluster"));
}

#[test]
fn the_plugin_is_built_for_every_platform_of_its_manifest() {
    let script = read("scripts/release");
    let line = script.lines().find(|line| line.starts_with("PLATFORMS="));
    let listed = line.unwrap().split('"').nth(1).unwrap();
    let listed: BTreeSet<&str> = listed.split(' ').collect();
    let jobs = &workflow()["jobs"];
    let matrix = jobs["plugin"]["strategy"]["matrix"]["include"].as_array();
    let built: BTreeSet<&str> = matrix
        .unwrap()
        .iter()
        .map(|entry| entry["platform"].as_str().unwrap())
        .collect();
    assert_eq!(built, listed);
    let systems = ["linux", "darwin", "windows"];
    for (system, processor) in systems.iter().flat_map(|s| [(s, "amd64"), (s, "arm64")]) {
        let platform = format!("{system}-{processor}");
        assert!(built.contains(&*platform), "{platform}");
        assert!(
            script.contains(&format!("    {platform}) triple=")),
            "{platform}"
        );
    }
}

/// The output of a command in the repository.
fn output(command: &mut Command) -> String {
    let output = command.current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    String::from_utf8(output.stdout).unwrap()
}

fn script() -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/release"))
}

/// The page of a release is not in the repository, so links between files lead nowhere there.
#[test]
fn the_notes_of_a_release_link_to_its_tag() {
    let version = env!("CARGO_PKG_VERSION");
    let notes = output(script().args(["notes", version]));
    let tag = format!(
        "](https://github.com/{}/blob/v{version}/docs/",
        repository()
    );
    assert!(notes.contains(&tag), "{notes}");
    let links = notes.split("](").skip(1);
    let relative: Vec<&str> = links.filter(|link| !link.starts_with("https://")).collect();
    assert!(relative.is_empty(), "{relative:?}");
}

/// The files of an archive that `scripts/release pack` makes, each with whether it can be run.
fn packed(platform: &str, program: &str) -> BTreeMap<String, bool> {
    let scratch = tempfile::tempdir().unwrap();
    let built = scratch.path().join(program);
    std::fs::write(&built, "a program").unwrap();
    output(
        script()
            .args(["pack", platform, built.to_str().unwrap()])
            .env("OUT", scratch.path()),
    );
    let archive = scratch.path().join(format!("kubectl-quorum-{platform}"));
    let list = r#"
import sys, tarfile, zipfile
try:
    for file in tarfile.open(sys.argv[1] + ".tar.gz"): print(file.mode & 0o111 != 0, file.name)
except FileNotFoundError:
    for file in zipfile.ZipFile(sys.argv[1] + ".zip").infolist():
        print((file.external_attr >> 16) & 0o111 != 0, file.filename)
"#;
    let listed = output(Command::new("python3").args(["-c", list]).arg(archive));
    let files = listed.lines().map(|line| {
        let (runs, name) = line.split_once(' ').unwrap();
        (name.to_owned(), runs == "True")
    });
    files.collect()
}

#[test]
fn an_archive_has_the_plugin_and_its_completion() {
    let files = |names: [(&str, bool); 3]| names.map(|(name, runs)| (name.to_owned(), runs));
    for system in ["linux", "darwin"] {
        assert_eq!(
            packed(&format!("{system}-arm64"), "kubectl-quorum"),
            files([
                ("kubectl-quorum", true),
                ("kubectl_complete-quorum", true),
                ("LICENSE", false),
            ])
            .into()
        );
    }
    assert_eq!(
        packed("windows-amd64", "kubectl-quorum.exe"),
        files([
            ("kubectl-quorum.exe", true),
            ("kubectl_complete-quorum.cmd", true),
            ("LICENSE", false),
        ])
        .into()
    );
    // The commands of the document unpack what is there.
    let unpacks =
        "tar -xzf kubectl-quorum-linux-amd64.tar.gz kubectl-quorum kubectl_complete-quorum";
    assert!(read("docs/plugin.md").contains(unpacks));
}

/// The commands of a document's block that begins with kind, each on one line.
fn quickstart(document: &str) -> Option<Vec<String>> {
    let text = read(document);
    let lines = text
        .lines()
        .skip_while(|l| !l.starts_with("    kind create"));
    let block: Vec<&str> = lines.map_while(|line| line.strip_prefix("    ")).collect();
    let joined = block.join("\n").replace("\\\n", " ");
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let commands: Vec<String> = joined.lines().map(words).collect();
    (!commands.is_empty()).then_some(commands)
}

#[test]
fn every_quickstart_has_the_commands_that_ci_runs() {
    let tried = quickstart("hack/README.md").expect("commands");
    for document in ["README.md", "charts/quorumgate/README.md"] {
        if let Some(commands) = quickstart(document) {
            let commands: Vec<&str> = commands
                .iter()
                .map(|c| c.split(" # ").next().unwrap())
                .collect();
            assert_eq!(commands, tried, "{document}");
        }
    }
    let owner = repository().split('/').next().unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let chart = format!("oci://ghcr.io/{owner}/charts/quorumgate --version {version} ");
    assert!(
        tried[1].starts_with(&format!("helm install quorumgate {chart}")),
        "{}",
        tried[1]
    );
    let pushed = r#""oci://ghcr.io/$GITHUB_REPOSITORY_OWNER/charts""#;
    assert!(commands(&workflow()["jobs"]["publish"]).contains(pushed));
    let files = tried.iter().flat_map(|command| command.split(' '));
    let files: Vec<&str> = files.filter(|word| word.starts_with("hack/")).collect();
    assert_eq!(files, ["hack/kind.yaml", "hack/etcd.yaml"]);
}

#[test]
fn the_cluster_of_the_quickstart_fits_on_three_nodes_and_on_one() {
    let nodes = documents("hack/kind.yaml").remove(0);
    let roles = nodes["nodes"].as_array().unwrap().iter();
    let roles: Vec<&str> = roles.map(|node| node["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["control-plane", "worker", "worker", "worker"]);
    let objects = documents("hack/etcd.yaml");
    let set = objects
        .iter()
        .find(|object| object["kind"] == "StatefulSet")
        .unwrap();
    let pod = &set["spec"]["template"]["spec"];
    let deployment = &documents("manifests/base/deployment.yaml")[0];
    let gate = &deployment["spec"]["template"]["spec"];
    for (pod, selector) in [
        (pod, &set["spec"]["selector"]),
        (gate, &deployment["spec"]["selector"]),
    ] {
        assert_eq!(pod.get("affinity"), None);
        assert_eq!(
            pod["topologySpreadConstraints"][0],
            json!({
                "topologyKey": "kubernetes.io/hostname", "maxSkew": 1,
                "whenUnsatisfiable": "DoNotSchedule", "nodeTaintsPolicy": "Honor",
                "labelSelector": selector,
            })
        );
    }
}
