#include "operator/process/heap.h"

#include <malloc.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <stop_token>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace fusionllm::op {
namespace {

constexpr char kTunables[] = "GLIBC_TUNABLES";
constexpr char kBegunAnew[] = "FUSION_OPERATOR_BEGUN_ANEW";  // once is enough, whatever becomes of the tunables
constexpr absl::string_view kThreadCaches = "glibc.malloc.tcache_count=";

}  // namespace

std::optional<std::string> WithoutThreadCaches(absl::string_view present) {
  if (absl::StrContains(present, kThreadCaches)) return std::nullopt;
  return absl::StrCat(present, present.empty() ? "" : ":", kThreadCaches, "0");
}

void LeaveThreadCaches(char** argv) {
  // A privileged program is not told of tunables, and would begin anew for ever. Where the loader was called with this program, it is the
  // loader that /proc/self/exe names.
  if (getauxval(AT_SECURE) != 0 || getauxval(AT_BASE) == 0 || std::getenv(kBegunAnew) != nullptr) return;
  const char* const present = std::getenv(kTunables);
  const std::optional<std::string> tunables = WithoutThreadCaches(present == nullptr ? "" : present);
  if (!tunables.has_value() || setenv(kTunables, tunables->c_str(), 1) != 0 || setenv(kBegunAnew, "1", 1) != 0) return;
  // By its path, after which the process is called; argv[0] may be looked for in $PATH.
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  if (length <= 0) return;
  path[length] = '\0';
  execv(path, argv);
}

void LimitHeap() {
  mallopt(M_ARENA_MAX, 2);
  mallopt(M_MMAP_THRESHOLD, 128 << 10);
}

void GiveBackFreeMemory() { (void)malloc_trim(0); }

HeapKeeper::HeapKeeper(kube::Clock& clock, std::function<void()> give_back)
    : thread_([&clock, give_back = std::move(give_back)](const std::stop_token& stop) {
        while (clock.WaitFor(kGiveBackEvery, stop)) give_back();
      }) {}

}  // namespace fusionllm::op
