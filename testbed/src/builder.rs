//! Builds of the binaries of a release, which are kept in the cache.
//!
//! A build has a directory of its own, which is renamed into place when the build is complete. So a
//! cache directory has either all binaries of a release or none. Concurrent callers wait for the
//! first one, and build nothing.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::fcntl::{Flock, FlockArg};

use crate::paths::Cache;
use crate::versions::{Origin, Release, Software};

/// The file that is written last into a directory of binaries: the fingerprint of their sources and
/// options.
const STAMP: &str = ".built-from";

/// The directory with the binaries of `release`. Builds them first if they are missing or outdated.
///
/// Progress is printed on standard error. The call takes milliseconds if nothing has to be built,
/// and minutes otherwise. It blocks its thread.
pub fn ensure_built(cache: &Cache, release: &Release) -> Result<PathBuf> {
    match release.origin {
        Origin::Package { name, directory } => {
            installed(release, name, Path::new(directory)).map(Path::to_path_buf)
        }
        Origin::GoModule {
            directory,
            go_mod,
            go_sum,
        } => {
            let build = Build {
                cache,
                release,
                module: directory,
                go_mod,
                go_sum,
            };
            build.ensure()
        }
    }
}

/// Whether the binaries of `release` are there and up to date.
pub fn is_built(cache: &Cache, release: &Release) -> bool {
    match release.origin {
        Origin::Package { name, directory } => {
            installed(release, name, Path::new(directory)).is_ok()
        }
        Origin::GoModule {
            directory,
            go_mod,
            go_sum,
        } => Build {
            cache,
            release,
            module: directory,
            go_mod,
            go_sum,
        }
        .is_current(),
    }
}

fn installed<'a>(release: &Release, package: &str, directory: &'a Path) -> Result<&'a Path> {
    for binary in binaries(release.software) {
        ensure!(
            directory.join(binary.name).exists(),
            "{} {} comes from the operating system, and {} is missing; install it with\n  apt-get install {package} {}",
            release.software.name(),
            release.version,
            directory.join(binary.name).display(),
            package.replace("-server", "-client"),
        );
    }
    Ok(directory)
}

/// A binary: the Go package to build, and the names of the result.
struct Binary {
    package: &'static str,
    /// The name that `go build -o directory/` gives it: the last element of the package's path that
    /// is no version.
    built_as: &'static str,
    name: &'static str,
}

const fn binary(package: &'static str, built_as: &'static str, name: &'static str) -> Binary {
    Binary {
        package,
        built_as,
        name,
    }
}

const KUBERNETES: &[Binary] = &[
    binary(
        "k8s.io/kubernetes/cmd/kube-apiserver",
        "kube-apiserver",
        "kube-apiserver",
    ),
    binary(
        "k8s.io/kubernetes/cmd/kube-controller-manager",
        "kube-controller-manager",
        "kube-controller-manager",
    ),
    binary(
        "k8s.io/kubernetes/cmd/kube-scheduler",
        "kube-scheduler",
        "kube-scheduler",
    ),
    binary("k8s.io/kubernetes/cmd/kubectl", "kubectl", "kubectl"),
];

const ETCD: &[Binary] = &[
    binary("go.etcd.io/etcd/server/v3", "server", "etcd"),
    binary("go.etcd.io/etcd/etcdctl/v3", "etcdctl", "etcdctl"),
];

fn binaries(software: Software) -> &'static [Binary] {
    match software {
        Software::Kubernetes => KUBERNETES,
        Software::Etcd => ETCD,
    }
}

/// Without tables for debuggers, which the linker drops anyway, packages compile a tenth faster.
const COMPILER: &str = "-gcflags=all=-dwarf=false";

struct Build<'a> {
    cache: &'a Cache,
    release: &'a Release,
    module: &'a str,
    go_mod: &'a str,
    go_sum: &'a str,
}

impl Build<'_> {
    fn ensure(&self) -> Result<PathBuf> {
        let target = self.cache.binaries(self.release);
        if self.is_current() {
            return Ok(target);
        }
        let work = self.cache.root().join("build").join(self.module);
        fs::create_dir_all(&work).with_context(|| format!("cannot create {}", work.display()))?;
        let _lock = self.lock(&work)?;
        // Another process may have built it while this one waited for the lock.
        if !self.is_current() {
            self.build(&work, &target)?;
        }
        Ok(target)
    }

    fn is_current(&self) -> bool {
        fs::read_to_string(self.cache.binaries(self.release).join(STAMP))
            .is_ok_and(|stamp| stamp == self.fingerprint())
    }

    fn lock(&self, work: &Path) -> Result<Flock<File>> {
        let path = work.join("lock");
        let file =
            File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        let file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((file, _)) => file,
        };
        print(&format!(
            "{} is being built by another process; waiting for it",
            self.title()
        ));
        Flock::lock(file, FlockArg::LockExclusive)
            .map_err(|(_, error)| error)
            .with_context(|| format!("cannot lock {}", path.display()))
    }

    fn build(&self, work: &Path, target: &Path) -> Result<()> {
        let started = Instant::now();
        print(&format!(
            "building {} (once; kept in {})",
            self.title(),
            target.display()
        ));
        fs::write(work.join("go.mod"), self.go_mod)?;
        fs::write(work.join("go.sum"), self.go_sum)?;
        let fresh = work.join("out");
        remove_directory(&fresh)?;
        self.run_go(work, &fresh)?;
        for Binary { built_as, name, .. } in binaries(self.release.software) {
            if built_as != name {
                fs::rename(fresh.join(built_as), fresh.join(name))
                    .with_context(|| format!("go build left no {built_as}"))?;
            }
        }
        fs::write(fresh.join(STAMP), self.fingerprint())?;
        remove_directory(target)?;
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::rename(&fresh, target).with_context(|| format!("cannot put {}", target.display()))?;
        print(&format!(
            "built {} in {:.0?}",
            self.title(),
            started.elapsed()
        ));
        Ok(())
    }

    fn run_go(&self, work: &Path, out: &Path) -> Result<()> {
        fs::create_dir_all(out)?;
        let packages = || {
            let binaries = binaries(self.release.software).iter();
            binaries.map(|binary| binary.package)
        };
        print("downloading its modules");
        let listed = go(work)
            .args(["list", "-deps", "-f", "{{.ImportPath}}"])
            .args(packages())
            .output()
            .with_context(|| self.no_go())?;
        if !listed.status.success() {
            let said = String::from_utf8_lossy(&listed.stderr);
            bail!("the modules of {} cannot be had:\n{said}", self.title());
        }
        let all = String::from_utf8_lossy(&listed.stdout).lines().count();
        let mut build = go(work);
        build
            .args([
                "build",
                "-v",
                "-trimpath",
                COMPILER,
                "-ldflags",
                &self.ldflags(),
                "-o",
            ])
            .arg(format!("{}/", out.display()))
            .args(packages())
            // The compiler collects garbage less often, which takes a tenth less time.
            .env("GOGC", "400")
            .stderr(Stdio::piped());
        let mut running = build.spawn().with_context(|| self.no_go())?;
        if let Some(stderr) = running.stderr.take() {
            Progress::new(all).follow(BufReader::new(stderr))?;
        }
        let status = running.wait()?;
        if !status.success() {
            bail!(
                "building {} failed ({status}); to see it again, run\n  cd {} && CGO_ENABLED=0 go build {}",
                self.title(),
                work.display(),
                packages().collect::<Vec<_>>().join(" "),
            );
        }
        Ok(())
    }

    fn no_go(&self) -> String {
        format!(
            "cannot run `go`, which builds {}; install Go 1.26 or newer, for example with\n  apt-get install golang-go\nor from https://go.dev/dl/",
            self.title()
        )
    }

    /// The linker flags. Kubernetes has its own version from the linker only; etcd has it in its
    /// source.
    fn ldflags(&self) -> String {
        let strip = "-s -w";
        if self.release.software == Software::Etcd {
            return strip.into();
        }
        let version = self.release.version;
        let package = "k8s.io/component-base/version";
        let mut numbers = version.split('.');
        let (major, minor) = (
            numbers.next().unwrap_or_default(),
            numbers.next().unwrap_or_default(),
        );
        format!(
            "{strip} -X {package}.gitVersion=v{version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
        )
    }

    /// A hash that changes whenever the result of a build would change.
    fn fingerprint(&self) -> String {
        let flags = self.ldflags();
        let packages = binaries(self.release.software)
            .iter()
            .map(|binary| binary.package);
        let parts = [self.go_mod, self.go_sum, &flags]
            .into_iter()
            .chain(packages);
        format!(
            "{:016x}\n",
            fnv1a(parts.flat_map(|part| part.bytes().chain([0])))
        )
    }

    fn title(&self) -> String {
        format!("{} {}", self.release.software.name(), self.release.version)
    }
}

/// A call of `go` in a module.
fn go(module: &Path) -> Command {
    let mut go = Command::new("go");
    go.current_dir(module)
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .stdin(Stdio::null());
    go
}

/// The time between two lines about a build that goes on.
const PROGRESS: Duration = Duration::from_secs(15);

/// How far `go build -v` has come. It prints the name of each package that it compiles.
struct Progress {
    /// The number of packages, of which some may be compiled already.
    all: usize,
    compiled: usize,
    started: Instant,
    told: Instant,
}

impl Progress {
    fn new(all: usize) -> Self {
        let now = Instant::now();
        Self {
            all,
            compiled: 0,
            started: now,
            told: now,
        }
    }

    /// Reads what go prints to its end. Passes on what is no name of a package, such as errors.
    fn follow(mut self, lines: impl BufRead) -> Result<()> {
        for line in lines.lines() {
            match self.take(&line?) {
                Some(other) => eprintln!("{other}"),
                None if self.told.elapsed() >= PROGRESS => {
                    self.told = Instant::now();
                    print(&self.line(self.started.elapsed()));
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Counts the name of a package. Returns a line that is none.
    fn take<'a>(&mut self, line: &'a str) -> Option<&'a str> {
        if line.contains(char::is_whitespace) {
            return Some(line);
        }
        self.compiled += 1;
        None
    }

    fn line(&self, elapsed: Duration) -> String {
        format!(
            "compiled {} of {} packages in {} s",
            self.compiled,
            self.all,
            elapsed.as_secs()
        )
    }
}

/// FNV-1a with 64 bits. The result is stable over releases of Rust, unlike that of the standard
/// library's hasher.
fn fnv1a(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn remove_directory(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Prints a line for the person who waits.
pub(crate) fn print(line: &str) {
    eprintln!("testbed: {line}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::versions::{self, RELEASES};

    #[test]
    fn a_package_that_is_not_installed_is_named_with_the_command_that_installs_it() {
        let release = versions::find(Software::Etcd, "3.4").unwrap();
        let empty = tempfile::tempdir().unwrap();
        let error = installed(release, "etcd-server", empty.path())
            .unwrap_err()
            .to_string();
        assert!(error.contains("apt-get install etcd-server"), "{error}");
    }

    #[test]
    fn progress_counts_packages_and_passes_on_what_else_go_prints() {
        let mut progress = Progress::new(3);
        assert_eq!(progress.take("k8s.io/kubernetes/cmd/kubectl"), None);
        let error = "# k8s.io/klog/v2\n";
        assert_eq!(progress.take(error), Some(error));
        assert_eq!(progress.take("errors"), None);
        assert_eq!(
            progress.line(Duration::from_secs(75)),
            "compiled 2 of 3 packages in 75 s"
        );
    }

    #[test]
    fn the_fingerprint_tells_releases_apart_and_an_empty_cache_has_none_built() {
        let empty = tempfile::tempdir().unwrap();
        let cache = Cache::at(empty.path());
        let mut seen = std::collections::BTreeSet::new();
        for release in RELEASES {
            let Origin::GoModule {
                directory,
                go_mod,
                go_sum,
            } = release.origin
            else {
                continue;
            };
            let build = Build {
                cache: &cache,
                release,
                module: directory,
                go_mod,
                go_sum,
            };
            assert!(
                seen.insert(build.fingerprint()),
                "{} is not told apart",
                release.version
            );
            assert!(!is_built(&cache, release));
        }
    }
}
