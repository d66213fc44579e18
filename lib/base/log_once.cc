#include "lib/base/log_once.h"

#include <functional>
#include <set>
#include <string>

#include "lib/base/mutex.h"

namespace fusionllm::base {

void LogOnce(LogLevel level, absl::string_view sentence) {
  static base::Mutex mutex;
  static auto* const said ABSL_PT_GUARDED_BY(mutex) =
      new std::set<std::string, std::less<>>;  // never destroyed: threads may log to the end
  {
    const base::MutexLock lock(mutex);
    if (!said->emplace(sentence).second) return;
  }
  Log(level, sentence);
}

}  // namespace fusionllm::base
