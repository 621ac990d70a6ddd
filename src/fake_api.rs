//! An API server in memory for unit tests: objects by path, resourceVersions, conflicts and unknown
//! kinds.
//!
//! It stores what it is given and checks no schema. What a real API server does is tested against a
//! real one.

pub(crate) mod etcd;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use crate::clock::Clock;
use crate::etcd::{Connections, Prober};
use crate::ledger::Ledger;
use crate::observe::{Observer, Sources};

/// The server. Clones share its objects.
#[derive(Clone, Default)]
pub(crate) struct FakeApi(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    missing_kinds: BTreeSet<String>,
    forbidden: BTreeSet<String>,
    /// Fields of a status that the server's schema does not have.
    pruned: BTreeSet<String>,
    version: u64,
    requests: Vec<String>,
    mutation: Option<Mutation>,
    /// Whether the next write of a status conflicts with another writer.
    loses_next_write: bool,
    /// Whether every write of a status conflicts with another writer.
    loses_every_write: bool,
    /// The prefix of requests that panic in the task that sends them.
    breaks: Option<String>,
    /// Prefixes of requests that are never answered.
    silent: BTreeSet<String>,
}

/// A mutating webhook: changes an object before it is stored. The second argument is the stored
/// one.
type Mutation = Box<dyn Fn(&mut Value, &Value) + Send>;

type Answer = (StatusCode, Value);

impl FakeApi {
    /// A client of this server.
    pub(crate) fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await?;
                let asked = format!("{} {}", parts.method, parts.uri);
                server.break_for(&asked);
                if server.is_silent(&asked) {
                    server.note(&asked);
                    std::future::pending::<()>().await;
                }
                Ok::<_, kube::Error>(server.answer(&parts.method, &parts.uri, &body))
            }
        });
        Client::new(service, "default")
    }

    /// An observer of this server that remembers nothing yet. Members have 100 ms to answer.
    pub(crate) fn observer(&self, clock: &Clock, settle_time: Duration) -> Observer {
        Observer::new(Sources {
            client: self.client(),
            ledger: Ledger::new(self.client(), clock.clone()),
            prober: Prober::new(Connections::new(clock.clone()), clock.clone()),
            probe_timeout: Duration::from_millis(100),
            settle_time,
            clock: clock.clone(),
            metrics: Arc::default(),
        })
    }

    /// Stores an object under its path, in place of any other.
    pub(crate) fn put(&self, path: &str, mut object: Value) {
        let mut state = self.state();
        state.version += 1;
        object["metadata"]["resourceVersion"] = json!(state.version.to_string());
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("uid-{}", state.version));
        }
        state.objects.insert(path.to_owned(), object);
    }

    /// Removes an object.
    pub(crate) fn remove(&self, path: &str) {
        self.state().objects.remove(path);
    }

    /// The object under a path.
    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.state().objects.get(path).cloned()
    }

    /// Makes the server answer as if it did not know the kind, for every path that contains this.
    pub(crate) fn undefine(&self, kind: &str) {
        self.state().missing_kinds.insert(kind.to_owned());
    }

    /// Makes the server answer that the request is forbidden, for every path that contains this.
    pub(crate) fn forbid(&self, kind: &str) {
        self.state().forbidden.insert(kind.to_owned());
    }

    /// Drops this field (`field` or `parent.field`) of every status that is written, as an older
    /// definition of the resource does.
    pub(crate) fn prune(&self, field: &str) {
        self.state().pruned.insert(field.to_owned());
    }

    /// Changes every patched object before it is stored.
    pub(crate) fn mutate(&self, mutation: impl Fn(&mut Value, &Value) + Send + 'static) {
        self.state().mutation = Some(Box::new(mutation));
    }

    /// Makes the next write of a status conflict with another writer.
    pub(crate) fn conflict_once(&self) {
        self.state().loses_next_write = true;
    }

    /// Makes every write of a status conflict with another writer.
    pub(crate) fn conflict_always(&self) {
        self.state().loses_every_write = true;
    }

    /// Makes every request that begins like this (`METHOD path`) panic in the task that sends it.
    pub(crate) fn break_whoever_asks(&self, request: &str) {
        self.state().breaks = Some(request.to_owned());
    }

    /// Leaves every request that begins like this (`METHOD path`) without an answer.
    pub(crate) fn silence(&self, request: &str) {
        self.state().silent.insert(request.to_owned());
    }

    /// Adds an event that happened elsewhere to the sequence of the requests.
    pub(crate) fn note(&self, what: &str) {
        self.state().requests.push(what.to_owned());
    }

    /// The requests since the last call, as `METHOD path`.
    pub(crate) fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state().requests)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn break_for(&self, request: &str) {
        let breaks = self.state().breaks.clone();
        let broken = breaks.is_some_and(|asked| request.starts_with(&asked));
        assert!(!broken, "{request} breaks whoever asks");
    }

    fn is_silent(&self, request: &str) -> bool {
        let silent = &self.state().silent;
        silent.iter().any(|asked| request.starts_with(asked))
    }

    fn answer(&self, method: &Method, uri: &http::Uri, body: &[u8]) -> Response<Body> {
        let mut state = self.state();
        let path = uri.path().trim_end_matches('/');
        let query = uri.query().unwrap_or_default();
        state.requests.push(format!("{method} {uri}"));
        if state.missing_kinds.iter().any(|kind| path.contains(kind)) {
            let nothing = Response::builder().status(StatusCode::NOT_FOUND);
            return nothing
                .body(Body::from(b"404 page not found\n".to_vec()))
                .unwrap();
        }
        let body: Option<Value> = serde_json::from_slice(body).ok();
        let is_forbidden = state.forbidden.iter().any(|kind| path.contains(kind));
        let (code, answer) = match (method.as_str(), body) {
            _ if is_forbidden => failure(StatusCode::FORBIDDEN, "Forbidden", path),
            ("GET", _) => state.read(path, query),
            ("PUT", Some(object)) if path.ends_with("/status") => {
                state.replace_status(path, &object)
            }
            ("PUT", Some(object)) => state.replace(path, object),
            ("PATCH", Some(changes)) => state.merge(path, &changes),
            ("POST", Some(object)) => state.create(path, object),
            ("DELETE", Some(options)) => state.delete(path, &options["preconditions"]),
            _ => failure(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", path),
        };
        let response = Response::builder().status(code);
        response
            .body(Body::from(answer.to_string().into_bytes()))
            .unwrap()
    }
}

impl State {
    fn read(&self, path: &str, query: &str) -> Answer {
        if let Some(object) = self.objects.get(path) {
            return (StatusCode::OK, object.clone());
        }
        let (_, last) = path.rsplit_once('/').unwrap_or_default();
        if !last.ends_with('s') || last.contains('-') {
            return failure(StatusCode::NOT_FOUND, "NotFound", last);
        }
        // A list: the objects right below the path, or below the resource in any namespace.
        let all_namespaces = format!("/{last}/");
        let inside = format!("{path}/");
        let group = path.rsplit_once('/').map_or("", |(group, _)| group);
        let listed = self.objects.iter().filter(|(at, _)| {
            at.starts_with(&inside)
                || (!path.contains("/namespaces/")
                    && at.starts_with(group)
                    && at.contains(&all_namespaces))
        });
        let listed = listed.map(|(_, object)| object.clone());
        let mut items: Vec<Value> = listed.filter(|object| selected(object, query)).collect();
        let mut metadata = json!({"resourceVersion": self.version.to_string()});
        let number = |name: &str| {
            let mut parameters = form_urlencoded(query);
            let found = parameters.find(|(parameter, _)| parameter == name);
            found.map(|(_, value)| value.parse::<usize>().unwrap())
        };
        let first = number("continue").unwrap_or(0);
        items.drain(..first);
        if let Some(limit) = number("limit").filter(|limit| items.len() > *limit) {
            items.truncate(limit);
            metadata["continue"] = json!((first + limit).to_string());
        }
        let found =
            json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items});
        (StatusCode::OK, found)
    }

    fn replace_status(&mut self, path: &str, object: &Value) -> Answer {
        let path = path.trim_end_matches("/status");
        let Some(stored) = self.objects.get(path).cloned() else {
            return failure(StatusCode::NOT_FOUND, "NotFound", path);
        };
        let same = |field: &str| object["metadata"][field] == stored["metadata"][field];
        let lost = std::mem::take(&mut self.loses_next_write) || self.loses_every_write;
        if lost || !same("resourceVersion") || !same("uid") {
            return failure(StatusCode::CONFLICT, "Conflict", path);
        }
        let mut next = stored.clone();
        next["status"] = object["status"].clone();
        for field in &self.pruned {
            let status = &mut next["status"];
            let (holder, field) = match field.split_once('.') {
                Some((parent, field)) => (status.get_mut(parent), field),
                None => (Some(status), field.as_str()),
            };
            if let Some(fields) = holder.and_then(Value::as_object_mut) {
                fields.remove(field);
            }
        }
        if next != stored {
            self.version += 1;
            next["metadata"]["resourceVersion"] = json!(self.version.to_string());
            self.objects.insert(path.to_owned(), next.clone());
        }
        (StatusCode::OK, next)
    }

    fn replace(&mut self, path: &str, mut object: Value) -> Answer {
        let Some(stored) = self.objects.get(path) else {
            return failure(StatusCode::NOT_FOUND, "NotFound", path);
        };
        if !is_at(stored, &object["metadata"]) {
            return failure(StatusCode::CONFLICT, "Conflict", path);
        }
        object["metadata"]["uid"] = stored["metadata"]["uid"].clone();
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(path.to_owned(), object.clone());
        (StatusCode::OK, object)
    }

    /// A JSON patch, or a merge patch at the resourceVersion that it names.
    fn merge(&mut self, path: &str, changes: &Value) -> Answer {
        let Some(stored) = self.objects.get(path).cloned() else {
            return failure(StatusCode::NOT_FOUND, "NotFound", path);
        };
        if !is_at(&stored, &changes["metadata"]) {
            return failure(StatusCode::CONFLICT, "Conflict", path);
        }
        let mut next = stored.clone();
        match serde_json::from_value::<json_patch::Patch>(changes.clone()) {
            Ok(edits) if changes.is_array() => json_patch::patch(&mut next, &edits).unwrap(),
            _ => json_patch::merge(&mut next, changes),
        }
        if let Some(mutation) = &self.mutation {
            mutation(&mut next, &stored);
        }
        if next != stored {
            self.version += 1;
            next["metadata"]["resourceVersion"] = json!(self.version.to_string());
            self.objects.insert(path.to_owned(), next.clone());
        }
        (StatusCode::OK, next)
    }

    fn create(&mut self, path: &str, mut object: Value) -> Answer {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("{path}/{name}");
        if self.objects.contains_key(&path) {
            return failure(StatusCode::CONFLICT, "AlreadyExists", &path);
        }
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        object["metadata"]["uid"] = json!(format!("uid-{}", self.version));
        self.objects.insert(path, object.clone());
        (StatusCode::CREATED, object)
    }

    fn delete(&mut self, path: &str, preconditions: &Value) -> Answer {
        match self.objects.get(path) {
            None => failure(StatusCode::NOT_FOUND, "NotFound", path),
            Some(stored) if !is_at(stored, preconditions) => {
                failure(StatusCode::CONFLICT, "Conflict", path)
            }
            Some(_) => (
                StatusCode::OK,
                self.objects.remove(path).unwrap_or_default(),
            ),
        }
    }
}

/// Whether an object has the resourceVersion and the UID that the request names, if it names any.
fn is_at(stored: &Value, named: &Value) -> bool {
    ["resourceVersion", "uid"]
        .iter()
        .all(|field| named[field].is_null() || named[field] == stored["metadata"][field])
}

/// Whether an object matches the `labelSelector` (equalities only) and the `fieldSelector` of a
/// query.
fn selected(object: &Value, query: &str) -> bool {
    let mut parameters = form_urlencoded(query);
    parameters.all(|(parameter, value)| {
        let mut terms = value.split(',').filter_map(|term| term.split_once('='));
        match parameter.as_str() {
            "labelSelector" => {
                terms.all(|(key, value)| object["metadata"]["labels"][key] == json!(value))
            }
            "fieldSelector" => terms.all(|(key, value)| {
                let field = key.split('.').fold(object, |object, part| &object[part]);
                *field == json!(value)
            }),
            _ => true,
        }
    })
}

fn form_urlencoded(query: &str) -> impl Iterator<Item = (String, String)> + '_ {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (decoded(key), decoded(value)))
}

fn decoded(text: &str) -> String {
    let mut bytes = text.bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let hex: Vec<u8> = bytes.by_ref().take(2).collect();
                u8::from_str_radix(std::str::from_utf8(&hex).unwrap(), 16).unwrap()
            }
            other => other,
        });
    }
    String::from_utf8(out).unwrap()
}

fn failure(code: StatusCode, reason: &str, path: &str) -> Answer {
    let name = path.rsplit('/').next().unwrap_or_default();
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code.as_u16(),
        "message": format!("{reason}: {path}"), "details": {"name": name, "kind": "things"},
    });
    (code, status)
}
