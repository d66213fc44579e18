#include "lib/transport/shared_buckets.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <new>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/file_error.h"
#include "lib/base/status_macros.h"

namespace fusionllm::transport {
namespace {

constexpr uint64_t kMagic = 0x31544b4254534c46;  // "FLSTBKT1"
constexpr double kRateMax = 1e15;

struct Header {
  uint64_t magic;
  uint64_t count;
};

bool GoodRate(double rate) { return rate >= 1 && rate <= kRateMax; }

absl::Status CheckSpecs(std::span<const BucketSpec> specs) {
  if (specs.size() > kBucketsMax)
    return absl::InvalidArgumentError(absl::StrFormat("%d buckets; the most is %d", specs.size(), kBucketsMax));
  std::set<absl::string_view> names;
  for (const BucketSpec& spec : specs) {
    if (spec.name.empty() || spec.name.size() > kBucketNameBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrFormat("bucket name has %d bytes; it needs 1 to %d", spec.name.size(), kBucketNameBytesMax));
    }
    if (!names.insert(spec.name).second) return absl::InvalidArgumentError(absl::StrCat("bucket ", spec.name, " is named twice"));
    if (!GoodRate(spec.bytes_per_s)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("bucket %s has a rate of %g bytes/s; it needs 1 to %g", spec.name, spec.bytes_per_s, kRateMax));
    }
  }
  return absl::OkStatus();
}

}  // namespace

struct SharedBuckets::Slot {
  std::atomic<int64_t> next_free_ns;
  std::atomic<double> bytes_per_s;
  char name[kBucketNameBytesMax + 1];
};
static_assert(std::atomic<int64_t>::is_always_lock_free && std::atomic<double>::is_always_lock_free,
              "atomics are shared between processes");

// Memory that holds a Header and the slots: a mapped file or an anonymous mapping.
struct SharedBuckets::Region {
  void* at = nullptr;
  size_t bytes = 0;
  ~Region() {
    if (at != nullptr) munmap(at, bytes);
  }
  static absl::StatusOr<std::unique_ptr<Region>> Map(int fd, size_t bytes, const std::string& path) {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) return base::FileError(errno, "map", path);
    auto region = std::make_unique<Region>();
    region->at = at;
    region->bytes = bytes;
    return region;
  }
  Slot* slots() const { return reinterpret_cast<Slot*>(static_cast<std::byte*>(at) + sizeof(Header)); }
  void Fill(std::span<const BucketSpec> specs) {
    for (size_t i = 0; i < specs.size(); ++i) {
      Slot* slot = new (slots() + i) Slot;
      slot->next_free_ns = 0;
      slot->bytes_per_s = specs[i].bytes_per_s;
      std::memcpy(slot->name, specs[i].name.c_str(), specs[i].name.size() + 1);
    }
    new (at) Header{kMagic, specs.size()};
  }
};

SharedBuckets::SharedBuckets(std::unique_ptr<Region> region, Slot* slots, size_t count)
    : region_(std::move(region)), slots_(slots), count_(count) {}
SharedBuckets::~SharedBuckets() = default;

absl::StatusOr<std::shared_ptr<SharedBuckets>> SharedBuckets::InMemory(std::span<const BucketSpec> specs) {
  FUSIONLLM_RETURN_IF_ERROR(CheckSpecs(specs));
  FUSIONLLM_ASSIGN_OR_RETURN(std::unique_ptr<Region> region, Region::Map(-1, sizeof(Header) + specs.size() * sizeof(Slot), "memory"));
  region->Fill(specs);
  Slot* slots = region->slots();
  return std::shared_ptr<SharedBuckets>(new SharedBuckets(std::move(region), slots, specs.size()));
}

absl::StatusOr<std::shared_ptr<SharedBuckets>> SharedBuckets::Create(const std::string& path, std::span<const BucketSpec> specs) {
  FUSIONLLM_RETURN_IF_ERROR(CheckSpecs(specs));
  // Written aside and renamed, so that no process opens half a file or shares state with an earlier run.
  const std::string aside = absl::StrCat(path, ".new");
  unlink(aside.c_str());
  const int fd = open(aside.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return base::FileError(errno, "create", aside);
  const size_t bytes = sizeof(Header) + specs.size() * sizeof(Slot);
  // posix_fallocate, not ftruncate: a full disk is an error here instead of a SIGBUS later.
  const int allocated = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  absl::StatusOr<std::unique_ptr<Region>> region =
      allocated == 0 ? Region::Map(fd, bytes, aside) : base::FileError(allocated, "allocate", aside);
  close(fd);
  if (region.ok()) {
    (*region)->Fill(specs);
    if (rename(aside.c_str(), path.c_str()) != 0) region = base::FileError(errno, "rename", aside);
  }
  if (!region.ok()) {
    unlink(aside.c_str());
    return region.status();
  }
  Slot* slots = (*region)->slots();
  return std::shared_ptr<SharedBuckets>(new SharedBuckets(*std::move(region), slots, specs.size()));
}

absl::StatusOr<std::shared_ptr<SharedBuckets>> SharedBuckets::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return base::FileError(errno, "open", path);
  struct stat info;
  absl::StatusOr<std::unique_ptr<Region>> region;
  if (fstat(fd, &info) != 0) {
    region = base::FileError(errno, "read the size of", path);
  } else if (info.st_size < static_cast<off_t>(sizeof(Header))) {
    region = absl::DataLossError(absl::StrFormat("%s has %d bytes: it is no file of link buckets", path, info.st_size));
  } else {
    region = Region::Map(fd, static_cast<size_t>(info.st_size), path);
  }
  close(fd);
  FUSIONLLM_RETURN_IF_ERROR(region.status());
  const auto* header = static_cast<const Header*>((*region)->at);
  if (header->magic != kMagic || header->count > kBucketsMax || (*region)->bytes != sizeof(Header) + header->count * sizeof(Slot)) {
    return absl::DataLossError(absl::StrCat(path, " is no file of link buckets, or of another version"));
  }
  Slot* slots = (*region)->slots();
  const size_t count = header->count;
  for (size_t i = 0; i < count; ++i) {
    if (slots[i].name[kBucketNameBytesMax] != '\0' || !GoodRate(slots[i].bytes_per_s)) {
      return absl::DataLossError(absl::StrFormat("%s: bucket %d is damaged", path, i));
    }
  }
  return std::shared_ptr<SharedBuckets>(new SharedBuckets(*std::move(region), slots, count));
}

absl::StatusOr<size_t> SharedBuckets::Find(absl::string_view name) const {
  for (size_t i = 0; i < count_; ++i) {
    if (name == slots_[i].name) return i;
  }
  return absl::NotFoundError(absl::StrCat("no link bucket is called ", std::string(name)));
}

int64_t SharedBuckets::Reserve(size_t bucket, int64_t ready_ns, uint64_t bytes) {
  Slot& slot = slots_[bucket];
  const auto duration_ns =
      static_cast<int64_t>(std::ceil(static_cast<double>(bytes) * 1e9 / slot.bytes_per_s.load(std::memory_order_relaxed)));
  int64_t free_ns = slot.next_free_ns.load(std::memory_order_relaxed);
  while (true) {
    const int64_t finish_ns = std::max(free_ns, ready_ns) + duration_ns;
    if (slot.next_free_ns.compare_exchange_weak(free_ns, finish_ns, std::memory_order_relaxed)) return finish_ns;
  }
}

double SharedBuckets::bytes_per_s(size_t bucket) const { return slots_[bucket].bytes_per_s.load(std::memory_order_relaxed); }

absl::Status SharedBuckets::SetRate(size_t bucket, double bytes_per_s) {
  if (bucket >= count_) return absl::InvalidArgumentError(absl::StrFormat("bucket %d of %d", bucket, count_));
  if (!GoodRate(bytes_per_s))
    return absl::InvalidArgumentError(absl::StrFormat("a rate of %g bytes/s; it needs 1 to %g", bytes_per_s, kRateMax));
  slots_[bucket].bytes_per_s = bytes_per_s;
  return absl::OkStatus();
}

}  // namespace fusionllm::transport
