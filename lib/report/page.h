// The fixed parts of the page: its style and its script.
#pragma once

namespace fusionllm::report {

extern const char kStyle[];
extern const char kScript[];

}  // namespace fusionllm::report
