// What ranks of a chain tell each other beside numbers: what they call, and that they end. Internal to lib/collective.
//
// Bytes come from another process and may be anything; texts from them are made printable and are short. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/tensor/tensor.h"

namespace fusionllm::collective {

// What a rank calls.
struct CallHeader {
  uint64_t digest = 0;  // of the call, all types and counts, the chain and its chunks
  std::string call;     // for people: "AllReduce f32[3], bf16[7]"; of many tensors the first
  bool operator==(const CallHeader&) const = default;
};
CallHeader Describe(absl::string_view call, std::span<const tensor::TensorType> types, std::span<const int> chain, size_t chunk_bytes);
std::vector<std::byte> Encode(const CallHeader& call_header);
// Errors: InvalidArgument.
absl::StatusOr<CallHeader> ParseCallHeader(std::span<const std::byte> bytes);

// The last that a rank says.
struct CloseMessage {
  absl::Status why;   // of his end; OK: he left
  int64_t calls = 0;  // that he has done; all that the others need for those was sent
};
std::vector<std::byte> Encode(const CloseMessage& close_message);  // a long message is cut
// Errors: InvalidArgument.
absl::StatusOr<CloseMessage> ParseCloseMessage(std::span<const std::byte> bytes);

}  // namespace fusionllm::collective
