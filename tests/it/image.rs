//! The image has nothing but the program.

use std::path::Path;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
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
