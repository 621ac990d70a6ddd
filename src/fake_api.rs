//! An API server in memory, for unit tests: objects by their paths, resourceVersions, conflicts, missing kinds.
//!
//! It stores what it is given and checks no schema; what the real one does is tested against the real one.

pub(crate) mod etcd;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use http::{Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

/// The server. Clones share what it stores.
#[derive(Clone, Default)]
pub(crate) struct FakeApi(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    missing_kinds: BTreeSet<String>,
    forbidden: BTreeSet<String>,
    /// Fields of a status that the server's schema does not know.
    pruned: BTreeSet<String>,
    version: u64,
    requests: Vec<String>,
    mutation: Option<Mutation>,
    /// Whether somebody else is to have written just before the next write of a status.
    loses_next_write: bool,
    /// The same, before each of them.
    loses_every_write: bool,
    /// Whoever asks for what begins like this panics.
    breaks: Option<String>,
    /// What begins like one of these is never answered.
    silent: BTreeSet<String>,
}

/// A mutating webhook: changes what is about to be stored, given what is.
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

    /// Puts an object under its path, whatever was there.
    pub(crate) fn put(&self, path: &str, mut object: Value) {
        let mut state = self.state();
        state.version += 1;
        object["metadata"]["resourceVersion"] = json!(state.version.to_string());
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("uid-{}", state.version));
        }
        state.objects.insert(path.to_owned(), object);
    }

    /// Takes an object away.
    pub(crate) fn remove(&self, path: &str) {
        self.state().objects.remove(path);
    }

    /// The object under a path.
    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.state().objects.get(path).cloned()
    }

    /// Answers everything whose path contains this as a server that never heard of the kind.
    pub(crate) fn undefine(&self, kind: &str) {
        self.state().missing_kinds.insert(kind.to_owned());
    }

    /// Answers everything whose path contains this as a server that does not permit it.
    pub(crate) fn forbid(&self, kind: &str) {
        self.state().forbidden.insert(kind.to_owned());
    }

    /// Drops this field of every status that is written, as the schema of an older definition does: `field`, or `parent.field`.
    pub(crate) fn prune(&self, field: &str) {
        self.state().pruned.insert(field.to_owned());
    }

    /// Changes every patched object before it is stored.
    pub(crate) fn mutate(&self, mutation: impl Fn(&mut Value, &Value) + Send + 'static) {
        self.state().mutation = Some(Box::new(mutation));
    }

    /// Answers the next write of a status with a conflict, as if somebody else had written a moment before.
    pub(crate) fn conflict_once(&self) {
        self.state().loses_next_write = true;
    }

    /// Answers every write of a status with a conflict.
    pub(crate) fn conflict_always(&self) {
        self.state().loses_every_write = true;
    }

    /// Panics in the task of whoever sends a request that begins like this, `METHOD path`.
    pub(crate) fn break_whoever_asks(&self, request: &str) {
        self.state().breaks = Some(request.to_owned());
    }

    /// Never answers a request that begins like this, `METHOD path`.
    pub(crate) fn silence(&self, request: &str) {
        self.state().silent.insert(request.to_owned());
    }

    /// Puts something that happened elsewhere into the sequence of the requests.
    pub(crate) fn note(&self, what: &str) {
        self.state().requests.push(what.to_owned());
    }

    /// The requests so far, as `METHOD path`, and forgets them.
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
        // A list: everything right below the path, or below the resource in any namespace.
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
        let items: Vec<Value> = listed.filter(|object| selected(object, query)).collect();
        let metadata = json!({"resourceVersion": self.version.to_string()});
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

    /// A JSON merge patch, at the version it names.
    fn merge(&mut self, path: &str, changes: &Value) -> Answer {
        let Some(stored) = self.objects.get(path).cloned() else {
            return failure(StatusCode::NOT_FOUND, "NotFound", path);
        };
        if !is_at(&stored, &changes["metadata"]) {
            return failure(StatusCode::CONFLICT, "Conflict", path);
        }
        let mut next = stored.clone();
        json_patch::merge(&mut next, changes);
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

/// Whether an object has the version and the UID that are named, where they are.
fn is_at(stored: &Value, named: &Value) -> bool {
    ["resourceVersion", "uid"]
        .iter()
        .all(|field| named[field].is_null() || named[field] == stored["metadata"][field])
}

/// Whether an object matches the `labelSelector` (equalities only) and the `fieldSelector` of a query.
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
