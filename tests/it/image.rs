//! The image and the workflows that build it take nothing that somebody else may change afterwards.

use std::path::Path;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_action_of_a_workflow_is_pinned_by_its_commit() {
    let mut actions = 0;
    for workflow in ["ci.yaml", "release.yaml"] {
        let text = read(&format!(".github/workflows/{workflow}"));
        for line in text.lines().filter(|line| line.contains("uses:")) {
            let (_, action) = line.split_once('@').expect(line);
            let (commit, version) = action.split_once(" # v").expect(line);
            let is_commit = commit.len() == 40 && commit.bytes().all(|b| b.is_ascii_hexdigit());
            assert!(is_commit && !version.is_empty(), "{workflow}: {line}");
            actions += 1;
        }
    }
    assert!(actions > 3, "{actions} actions");
}

#[test]
fn the_image_has_no_base_and_one_file() {
    let file = read("Dockerfile");
    let lines = |word: &str| {
        let lines = file.lines().filter(|line| line.starts_with(word));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(lines("FROM"), ["FROM scratch"]);
    let copied = lines("COPY");
    assert_eq!(copied.len(), 1, "{copied:?}");
    // The context of the build has that file and nothing else.
    let context = read(".dockerignore");
    let named: Vec<_> = context.lines().filter(|l| !l.starts_with('#')).collect();
    assert_eq!(named, ["*", "!target/image/*/quorumgate"]);
    assert!(copied[0].contains("target/image/${TARGETARCH}/quorumgate"));
}
