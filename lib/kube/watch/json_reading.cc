#include "lib/kube/watch/json_reading.h"

#include <vector>

#include "lib/base/mutex.h"

namespace fusionllm::kube {
namespace {

// As many as read at a time where each has a core. What few objects are larger than is read with memory of its own.
constexpr size_t kMaxKept = 4, kKeptBytes = 128 << 10;

struct Pool {
  base::Mutex mutex;
  std::vector<std::unique_ptr<ParserLease::Parser>> idle ABSL_GUARDED_BY(mutex);
};

Pool& ThePool() {
  static auto* const pool = new Pool;  // never destroyed: threads may still read when the program ends
  return *pool;
}

}  // namespace

ParserLease::ParserLease() {
  {
    Pool& pool = ThePool();
    const base::MutexLock lock(pool.mutex);
    if (!pool.idle.empty()) {
      parser_ = std::move(pool.idle.back());
      pool.idle.pop_back();
    }
  }
  if (parser_ == nullptr) parser_ = std::make_unique<Parser>();
}

ParserLease::~ParserLease() {
  if (parser_->padded.capacity() > kKeptBytes) return;
  Pool& pool = ThePool();
  const base::MutexLock lock(pool.mutex);
  if (pool.idle.size() < kMaxKept) pool.idle.push_back(std::move(parser_));
}

simdjson::ondemand::document ParserLease::Iterate(absl::string_view json) {
  std::string& padded = parser_->padded;
  padded.reserve(json.size() + simdjson::SIMDJSON_PADDING);
  padded.assign(json.data(), json.size());
  padded.resize(json.size() + simdjson::SIMDJSON_PADDING);
  return parser_->parser.iterate(padded.data(), json.size(), padded.size());
}

}  // namespace fusionllm::kube
