#include "lib/transport/payload.h"

#include <cstring>

namespace fusionllm::transport {

Payload Payload::Of(tensor::Buffer buffer, size_t size) {
  auto owner = std::make_shared<tensor::Buffer>(std::move(buffer));
  const std::span<const std::byte> bytes(owner->data(), size);
  return Payload(std::move(owner), bytes);
}

Payload Payload::Of(std::string text) {
  auto owner = std::make_shared<std::string>(std::move(text));
  const auto bytes = std::as_bytes(std::span(owner->data(), owner->size()));
  return Payload(std::move(owner), bytes);
}

Payload Payload::CopyOf(std::span<const std::byte> bytes) {
  tensor::Buffer buffer(bytes.size());
  if (!bytes.empty()) std::memcpy(buffer.data(), bytes.data(), bytes.size());
  return Of(std::move(buffer));
}

}  // namespace fusionllm::transport
