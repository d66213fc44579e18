// A field table (lib/job/schema.h) as the OpenAPI v3 schema of a CustomResourceDefinition.
//
// API servers accept only "structural" schemas: every field has one type. Two shapes of the tables have none, and are let through with
// less: a number that may be the word auto is an int-or-string; a list that may be written as its only element is not typed at all, and
// the operator refuses what does not fit. Every list, text and mapping is bounded, which the cost limit of CEL rules asks for. Pure.
#pragma once

#include <string>

#include "lib/job/schema.h"
#include "nlohmann/json_fwd.hpp"

namespace fusionllm::kubeapi {

// CEL rules and hand-written parts are hung in at paths ("spec.placement.clusters[]") by crd.cc.
// kStatic: the default of a field that does not depend on another one; the reader of lib/job fills in the same.
enum class Defaults { kNone, kStatic };

nlohmann::ordered_json StructuralSchema(const job::FieldSchema& field, Defaults defaults);

}  // namespace fusionllm::kubeapi
