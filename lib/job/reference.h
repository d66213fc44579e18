// The field tables as data (for generators of documents and schemas) and as the page docs/reference/job-reference.md. Pure functions.
#pragma once

#include <string>

#include "lib/job/schema.h"

namespace fusionllm::job {

// The root objects; their children are the fields in the order of the tables.
FieldSchema FusionJobSchema();
FieldSchema TopologySchema();

// Appends Markdown: one table for the object at `path` (empty: the root) and one for each object below it.
void AppendTables(const FieldSchema& object, const std::string& path, std::string& page);

// Markdown; docs/reference/job-reference.md is this text.
std::string ReferencePage();

}  // namespace fusionllm::job
