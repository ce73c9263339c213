//! `[[queue_templates]]`: the configuration of queues that are created without one (Q1).

use serde::{Deserialize, Serialize};
use tallystone_model::{ConfigError, QueueConfig, QueueName, Refusal};

/// The configuration of queues whose names begin with a prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueTemplate {
    /// Empty: every queue.
    pub prefix: String,
    /// Their configuration.
    pub config: QueueConfig,
}

/// All templates. They configure queues that their first Enqueue creates, and the absent fields of CreateQueue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct QueueTemplates(pub Vec<QueueTemplate>);

/// Which queues an Enqueue creates (Q1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CreateOnEnqueue {
    /// Every queue.
    #[default]
    Always,
    /// Those that have a template.
    Templates,
    /// None.
    Never,
}

impl QueueTemplates {
    /// Checks every template; the error names the first bad field.
    pub fn check(&self) -> Result<(), ConfigError> {
        for (i, template) in self.0.iter().enumerate() {
            let at = |field: &str, refusal: Refusal| match refusal {
                Refusal::Invalid { field: inner, why } if field == "config" => {
                    ConfigError::new(format!("queue_templates[{i}].config.{inner}"), why)
                }
                Refusal::Invalid { why, .. } => ConfigError::new(format!("queue_templates[{i}].{field}"), why),
                other => ConfigError::new(format!("queue_templates[{i}].{field}"), other.to_string()),
            };
            if !template.prefix.is_empty() {
                QueueName::parse("prefix", &template.prefix).map_err(|refusal| at("prefix", refusal))?;
            }
            template.config.check().map_err(|refusal| at("config", refusal))?;
            if self.0[..i].iter().any(|other| other.prefix == template.prefix) {
                let field = format!("queue_templates[{i}].prefix");
                return Err(ConfigError::new(field, format!("{:?} occurs twice", template.prefix)));
            }
        }
        Ok(())
    }

    /// The configuration in the template with the longest matching prefix.
    pub fn template_of(&self, name: &QueueName) -> Option<&QueueConfig> {
        let matching = self.0.iter().filter(|template| name.as_str().starts_with(&template.prefix));
        matching.max_by_key(|template| template.prefix.len()).map(|template| &template.config)
    }

    /// The configuration that a queue of this name gets: that of its template, or else the default.
    pub fn config_of(&self, name: &QueueName) -> QueueConfig {
        self.template_of(name).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tallystone_model::QueueType;

    #[test]
    fn each_bad_field_is_named() {
        let refused = |template: QueueTemplate| {
            QueueTemplates(vec![QueueTemplate::default(), template]).check().unwrap_err().field
        };
        let short_lease = QueueConfig { lease_ms: 1, ..QueueConfig::default() };
        assert_eq!(
            refused(QueueTemplate { prefix: "a".to_owned(), config: short_lease }),
            "queue_templates[1].config.lease_ms"
        );
        assert_eq!(refused(QueueTemplate::default()), "queue_templates[1].prefix");
        let no_name = QueueTemplate { prefix: "a b".to_owned(), ..QueueTemplate::default() };
        assert_eq!(refused(no_name), "queue_templates[1].prefix");
    }

    #[test]
    fn q1_the_longest_prefix_decides() {
        let template = |prefix: &str, key: &str| QueueTemplate {
            prefix: prefix.to_owned(),
            config: QueueConfig { queue_type: QueueType::Exclusive { key: key.to_owned() }, ..QueueConfig::default() },
        };
        let templates = QueueTemplates(vec![template("jobs/eu/", "b"), template("jobs/", "a")]);
        let key = |name: &str| {
            let name = QueueName::parse("queue", name).unwrap();
            templates.config_of(&name).queue_type.key().map(str::to_owned)
        };
        assert_eq!(key("jobs/eu/1").as_deref(), Some("b"));
        assert_eq!(key("jobs/us/1").as_deref(), Some("a"));
        assert_eq!(key("other"), None);
    }
}
