//! temporary
mod generation_id;
pub use generation_id::GenerationId;
pub(crate) struct Lease;
impl Lease {
    pub(crate) fn is_held(&self) -> bool {
        false
    }
}
use std::path::Path;
pub(crate) fn read_current(_: &Path) -> crate::Result<GenerationId> {
    GenerationId::new(1)
}
pub(crate) fn lease_current(_: &Path) -> crate::Result<Option<(GenerationId, Lease)>> {
    Ok(None)
}
