# Run at each build (cmake -P): writes OUTPUT, a source file with the commit of SOURCE_DIR, if that has changed.
find_package(Git QUIET)
set(commit "$ENV{FUSIONLLM_COMMIT}")
if(commit STREQUAL "" AND GIT_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} -C ${SOURCE_DIR} rev-parse --short=12 HEAD OUTPUT_VARIABLE commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
if(NOT commit MATCHES "^[0-9a-f]+$")
  set(commit "")
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[#include "operator/manager/build_commit.h"

namespace fusionllm::op::manager {

const char* BuildCommit() { return "@commit@"; }

}  // namespace fusionllm::op::manager
]] @ONLY)
