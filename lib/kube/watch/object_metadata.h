// The "metadata" of an object out of its JSON; for the decoders of this folder.
#pragma once

#include "lib/kube/watch/json_reading.h"
#include "lib/kube/watch/object.h"

namespace fusionllm::kube {

// Fills in `meta`. If asked for: `managed_fields`, the text of that array within the document, `annotations` and `controller`.
void ReadMetadata(JsonValue metadata, ObjectMeta& meta, std::string_view* managed_fields = nullptr, Annotations* annotations = nullptr,
                  ControllingOwner* controller = nullptr);

// InvalidArgument when what every object has is not there.
absl::Status CheckMetadata(const ObjectMeta& meta);

}  // namespace fusionllm::kube
