//! The certificates and the user that a way needs.

use crate::api::{AuthSpec, AuthoritySource, IdentitySource, MembersSpec, Scheme, Way};
use crate::observe::contents::{Object, Place};

/// The certificates and the user that a way needs, by the objects that have them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(in crate::observe) struct Credentials {
    pub(in crate::observe) authority: Option<AuthoritySource>,
    pub(in crate::observe) identity: Option<IdentitySource>,
    pub(in crate::observe) user: Option<UserSource>,
    /// The reason, for people, why no member can be asked: members serve TLS, and no authority for
    /// it was found.
    pub(in crate::observe) problem: Option<String>,
}

/// The places of user and password.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::observe) struct UserSource {
    pub(in crate::observe) name: Place,
    pub(in crate::observe) password: Place,
}

/// The credentials that this way needs. `None` if it needs none.
pub(in crate::observe) fn credentials(way: &Way, members: &MembersSpec) -> Option<Credentials> {
    let user = members.auth.as_ref().map(user_named);
    let credentials = match way.scheme {
        Scheme::Http => Credentials {
            user,
            ..Credentials::default()
        },
        Scheme::Https => Credentials {
            authority: way.authority.clone(),
            identity: way.identity.clone(),
            user,
            problem: way.authority.is_none().then(|| way.source.clone()),
        },
    };
    (credentials != Credentials::default()).then_some(credentials)
}

fn user_named(auth: &AuthSpec) -> UserSource {
    let secret = &auth.secret;
    let place = |key: &Option<String>, usual: &str| {
        let object = Object::secret(&secret.name);
        Place::new(object, key.as_deref().unwrap_or(usual))
    };
    UserSource {
        name: place(&secret.username_key, "username"),
        password: place(&secret.password_key, "password"),
    }
}
