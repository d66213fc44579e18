#include "lib/base/log_once.h"

#include <functional>
#include <mutex>
#include <set>
#include <string>

namespace fusionllm::base {

void LogOnce(LogLevel level, absl::string_view sentence) {
  static std::mutex mutex;
  static auto* const said = new std::set<std::string, std::less<>>;  // never destroyed: threads may log to the end
  {
    const std::lock_guard lock(mutex);
    if (!said->emplace(sentence).second) return;
  }
  Log(level, sentence);
}

}  // namespace fusionllm::base
