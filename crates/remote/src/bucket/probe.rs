//! A temporary object with which a store shows whether it honours conditions, and its time.

use object_store::{ObjectStoreExt, PutMode, PutResult};
use sharddb_format::internal::random::random_name;
use sharddb_format::{Error, ErrorKind, Result};

use crate::bucket::current::is_refused;
use crate::bucket::root::Root;
use crate::bucket_current::{ServerTime, is_random};

const PREFIX: &str = "probe-";

/// Upper bound on probes with lost replies.
const ATTEMPTS: usize = 3;

/// What a probe showed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Probed {
    Honoured,
    /// A write was refused although nobody else writes this object: it was repeated by the client, after the reply to it was
    /// lost.
    ReplyLost,
}

/// Returns whether this is the name of a probe, which a killed process may have left.
pub(super) fn is_probe(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(is_random)
}

impl Root {
    /// Checks that the store creates an object only once, and replaces it only if its ETag is the given one.
    ///
    /// Errors: `Unsupported` if it does not; `Io`.
    pub(super) async fn check_conditions(&self) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let name = format!("{PREFIX}{}", random_name());
            let checked = self.conditions_of(&name).await;
            self.remove_probe(&name).await;
            if checked? == Probed::Honoured {
                return Ok(());
            }
        }
        Err(self.unsupported("", "a new object to be created and replaced, found that refused"))
    }

    /// Returns the time of the server: that at which it wrote a new object.
    pub(super) async fn server_time(&self) -> Result<ServerTime> {
        let name = format!("{PREFIX}{}", random_name());
        let put = self.put(&self.path(&name)?, b"1".to_vec(), PutMode::Overwrite).await;
        let meta = match put {
            Ok(_) => self.head(&name).await,
            Err(error) => Err(self.failed("write", &name, error)),
        };
        self.remove_probe(&name).await;
        let meta = meta?.ok_or_else(|| self.unsupported(&name, "an object that was just written, found none"))?;
        self.modified(&meta)
    }

    async fn conditions_of(&self, name: &str) -> Result<Probed> {
        let path = self.path(name)?;
        let put = |bytes: &'static [u8], mode| self.put(&path, bytes.to_vec(), mode);
        let first = match put(b"1", PutMode::Create).await {
            Err(error) if is_refused(&error) => return Ok(Probed::ReplyLost),
            first => first.map_err(|error| self.failed("create", name, error))?,
        };
        self.check_refused(name, put(b"2", PutMode::Create).await, "a second creation to be refused")?;
        if first.e_tag.is_none() && first.version.is_none() {
            return Err(self.unsupported(name, "an ETag, found none"));
        }
        let update = PutMode::Update(first.into());
        match put(b"3", update.clone()).await {
            Err(error) if is_refused(&error) => return Ok(Probed::ReplyLost),
            replaced => drop(replaced.map_err(|error| self.failed("replace", name, error))?),
        }
        self.check_refused(name, put(b"4", update).await, "a replacement with an old ETag to be refused")?;
        Ok(Probed::Honoured)
    }

    fn check_refused(&self, name: &str, put: object_store::Result<PutResult>, expected: &str) -> Result<()> {
        match put {
            Err(error) if is_refused(&error) => Ok(()),
            Err(error) => Err(self.failed("replace", name, error)),
            Ok(_) => Err(self.unsupported(name, &format!("{expected}, found it done"))),
        }
    }

    fn unsupported(&self, name: &str, expected: &str) -> Error {
        let message = format!(
            "expected a store with conditional writes, and so {expected}: without them two publishers could lose a \
             generation"
        );
        Error::new(ErrorKind::Unsupported, message).at_path(&self.place(name))
    }

    /// Ignores errors: `gc` removes what remains.
    async fn remove_probe(&self, name: &str) {
        if let Ok(path) = self.path(name) {
            _ = self.store().delete(&path).await;
        }
    }
}
