// Owning, immutable, reference-counted bytes: copying or slicing a Payload copies no data.
//
// Thread-safe as std::shared_ptr is: distinct Payload objects over the same bytes may be used from different threads.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "lib/tensor/tensor.h"

namespace fusionllm::transport {

class Payload {
 public:
  Payload() = default;
  // Bytes kept alive by `owner`. They must not change while any Payload refers to them.
  Payload(std::shared_ptr<const void> owner, std::span<const std::byte> bytes) : owner_(std::move(owner)), bytes_(bytes) {}

  // The first `size` bytes of a buffer (size <= buffer.size()); no copy.
  static Payload Of(tensor::Buffer buffer, size_t size);
  static Payload Of(tensor::Buffer buffer) {
    const size_t size = buffer.size();
    return Of(std::move(buffer), size);
  }
  static Payload Of(std::string text);
  static Payload CopyOf(std::span<const std::byte> bytes);

  // A part of the same bytes; offset + size <= size().
  Payload Slice(size_t offset, size_t size) const { return Payload(owner_, bytes_.subspan(offset, size)); }

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::byte* data() const { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  absl::string_view text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }

 private:
  std::shared_ptr<const void> owner_;
  std::span<const std::byte> bytes_;
};

}  // namespace fusionllm::transport
