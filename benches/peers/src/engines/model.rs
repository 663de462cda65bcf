//! A model without storage: computes every answer from the key. The answers of the engines are compared with it.

use crate::data::DataSet;
use crate::reader::{Reader, Result};

pub struct Model {
    data: DataSet,
    value: Vec<u8>,
}

impl Model {
    pub fn new(data: DataSet) -> Model {
        Model { data, value: Vec::new() }
    }
}

impl Reader for Model {
    fn get<T>(&mut self, key: u64, f: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        if !self.data.contains(key) {
            return Ok(None);
        }
        self.data.value_into(key, &mut self.value);
        Ok(Some(f(&self.value)))
    }

    fn scan(&mut self, mut f: impl FnMut(u64, &[u8])) -> Result<()> {
        for key in self.data.keys() {
            self.data.value_into(key, &mut self.value);
            f(key, &self.value);
        }
        Ok(())
    }
}
