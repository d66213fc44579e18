// Which sources this program was built from.
#pragma once

namespace fusionllm::op::manager {

// The first 12 digits of the commit; empty: it was built from no git checkout, and $FUSIONLLM_COMMIT was not set either.
const char* BuildCommit();

}  // namespace fusionllm::op::manager
