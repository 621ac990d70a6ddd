# The two commands: `make demo` shows the gate at work, `make test` runs every check and test.
# Both install or build what they need, or say exactly what is missing (scripts/setup).

SHELL := /bin/bash
CARGO ?= cargo
IMAGE ?= quorumgate:dev
BENCHES := decide pass_through gated_allow memory crowds load rollouts strangers
export RUST_BACKTRACE ?= 1
# The chain of an error says where it comes from; pages of frames would hide it.
export RUST_LIB_BACKTRACE ?= 0

.PHONY: demo test test-all check unit model mutants e2e oldest versions cluster chaos bench bench-defragmentation race crds chart metrics pages alerts dashboard session conformance image image-binaries setup testbed

demo: setup                  ## a local control plane, an etcd cluster, the gate at work; ARGS=--keep leaves it running
	$(CARGO) build --locked --workspace --bin quorumgate --bin testbed --example demo
	"$${CARGO_TARGET_DIR:-target}/debug/testbed" build --etcd 3.7
	"$${CARGO_TARGET_DIR:-target}/debug/examples/demo" $(ARGS)

test:                        ## what a contributor runs: checks, units, properties, the model, and one end-to-end case of each promise
	@scripts/tier test

test-all:                    ## that and everything else; CI runs it on every change
	@scripts/tier test $(CLEAN) rest

check: setup                 ## format, lints, generated files; ARGS=--rare documentation, spelling, the book, licences
	scripts/check $(ARGS)

unit: setup model            ## unit, scenario, property, HTTP and TLS tests, and the model
	scripts/unit

model: setup                 ## every order of events, in a model that runs the code of core/; CASES=mutations for some
	scripts/model $(CASES)

mutants: setup               ## are the tests of core/ worth anything? About two hours; FILES=core/src/plan/rollout_state.rs for less
	scripts/mutants $(FILES)

testbed: setup               ## builds the control plane and etcd into the cache, once
	scripts/testbed build

e2e: setup testbed           ## against real etcd processes and a real control plane; TESTS=drains:: for some
	scripts/e2e $(TESTS)

oldest: setup                ## what the oldest supported Kubernetes does otherwise, on that; builds it once
	scripts/e2e --oldest

versions: setup testbed      ## what `make e2e` leaves out for its length, such as members and their data on further etcd versions; CASES=each_step for some
	scripts/e2e --ignored $(CASES)

cluster:                     ## the core cases on the cluster that KUBECONFIG names, with quorumgate installed; CASES=drain for some
	@test -n "$$KUBECONFIG" || { echo "cluster: set KUBECONFIG to the cluster to try, with quorumgate installed (README.md)" >&2; exit 1; }
	$(CARGO) test --locked --test cluster -- $(CASES)

chaos: setup testbed         ## everything at once and at random, on a control plane of its own; OPS=10000 SEED=7
	$(CARGO) build --locked --workspace --bins --examples
	QUORUMGATE_CHAOS_OPS=$(OPS) QUORUMGATE_CHAOS_SEED=$(SEED) $(CARGO) test --locked --workspace --test e2e -- --nocapture chaos::

bench: setup testbed         ## ratios in one run
	$(CARGO) bench --locked --workspace $(addprefix --bench ,$(BENCHES))

bench-defragmentation: setup testbed   ## ways to defragment members, side by side on 1 GiB of data: about 12 minutes
	$(CARGO) bench --locked --workspace --bench defragmentation

race: setup testbed          ## beside OPA, Gatekeeper, Kyverno and OpenKruise, which are built once into the cache; PARTS=answers for some: 45 minutes
	PARTS="$(PARTS)" scripts/race

crds: setup                  ## writes the definitions into the manifests and the chart
	$(CARGO) run --locked --quiet -- crds > manifests/base/crds.yaml
	$(CARGO) run --locked --quiet -- crds --etcd-members > manifests/etcd-members/crd.yaml
	cp manifests/base/crds.yaml charts/quorumgate/files/quorumdisruptionbudgets.yaml
	cp manifests/etcd-members/crd.yaml charts/quorumgate/files/etcdmembers.yaml

chart: setup                 ## writes charts/quorumgate/README.md, and lints the chart
	scripts/chart-readme > charts/quorumgate/README.md
	scripts/helm lint --strict charts/quorumgate

pages: setup                 ## writes docs/fields.md, docs/options.md and docs/rules.md
	UPDATE=1 $(CARGO) test --locked --quiet --test it pages::

metrics: setup               ## writes docs/metrics.md, and tests/alerts/metrics.txt for promtool
	UPDATE=1 $(CARGO) test --locked --quiet --workspace --test it metrics::the_

alerts: setup                ## do the alerts fire when they should, can the dashboard be drawn, are metrics named as they should be? Builds promtool once: five minutes on two cores
	scripts/promtool check metrics < tests/alerts/metrics.txt
	scripts/promtool check rules charts/quorumgate/alerts.yaml
	scripts/dashboard-rules > target/dashboard-rules.yaml && scripts/promtool check rules --lint=none target/dashboard-rules.yaml
	scripts/promtool test rules tests/alerts/rules_test.yaml

dashboard: setup testbed     ## draws docs/dashboard.svg from what a Prometheus reads while the demo plays. Builds Prometheus once: five minutes on two cores
	$(CARGO) build --locked --workspace --bins --examples
	scripts/dashboard-picture "$${CARGO_TARGET_DIR:-target}/debug/examples/demo"

session: setup testbed       ## writes docs/session.txt from what the demo prints, and draws docs/session.svg, the picture of the README
	$(CARGO) build --locked --workspace --bins --examples
	"$${CARGO_TARGET_DIR:-target}/debug/examples/demo" | scripts/session > docs/session.txt
	UPDATE=1 $(CARGO) test --locked --quiet --workspace --test it session::the_picture

conformance: setup           ## writes docs/conformance.md
	UPDATE=1 $(CARGO) test --locked --quiet --test it conformance::the_document

image:                       ## needs docker; IMAGE=registry/quorumgate:tag, and the same in the chart's values or in manifests/base/kustomization.yaml
	scripts/image-binaries host
	docker build --tag $(IMAGE) .

image-binaries: setup        ## the program of the image for amd64 and arm64, without docker; ARGS=--compare builds each twice
	scripts/image-binaries $(ARGS)

release: setup               ## the files of a release that this machine can build, into target/files: chart, manifests, plugin, sums (RELEASE.md)
	scripts/release

setup:
	@scripts/setup
