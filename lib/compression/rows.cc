#include "lib/compression/rows.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"
#include "lib/compression/codec.h"

namespace fusionllm::compression {
namespace {

constexpr uint8_t kVersion = 1;
constexpr size_t kTrailerBytes = 8;

struct Trailer {
  uint8_t version;
  uint8_t by_bitmap;
  uint16_t unused;
  uint32_t rows;
};
static_assert(sizeof(Trailer) == kTrailerBytes);

absl::Status Malformed(const char* what) { return absl::InvalidArgumentError(absl::StrFormat("gradient message: %s", what)); }

size_t BitmapBytes(size_t rows) { return (rows + 7) / 8; }
bool Marked(const uint8_t* bitmap, size_t row) { return (bitmap[row / 8] >> (row % 8) & 1) != 0; }

// Bit by bit: a negative zero must arrive as one.
bool IsZero(std::span<const float> row) {
  return std::all_of(row.begin(), row.end(), [](float x) { return std::bit_cast<uint32_t>(x) == 0; });
}

// Which rows of a matrix a message has.
struct Rows {
  std::vector<uint8_t> bitmap;  // empty: all
  size_t count = 0;
};

Rows Choose(const CodecSpec& spec, size_t columns, std::span<const float> values) {
  const size_t rows = values.size() / columns;
  Rows chosen{.bitmap = std::vector<uint8_t>(BitmapBytes(rows))};
  for (size_t row = 0; row < rows; ++row) {
    if (IsZero(values.subspan(row * columns, columns))) continue;
    chosen.bitmap[row / 8] |= static_cast<uint8_t>(1u << row % 8);
    ++chosen.count;
  }
  const int64_t marked = EncodedBytes(spec, static_cast<int64_t>(chosen.count * columns), Direction::kForward);
  if (marked + static_cast<int64_t>(chosen.bitmap.size()) < EncodedBytes(spec, static_cast<int64_t>(values.size()), Direction::kForward)) {
    return chosen;
  }
  return {.bitmap = {}, .count = rows};
}

// The rows of the message, as (offset in the matrix, offset in the message's values), in order.
template <typename Visit>
void ForEachRow(const std::vector<uint8_t>& bitmap, size_t rows, size_t columns, const Visit& visit) {
  size_t packed = 0;
  for (size_t row = 0; row < rows; ++row) {
    if (!Marked(bitmap.data(), row)) continue;
    visit(row * columns, packed);
    packed += columns;
  }
}

// The rows of a message, one after the other: `values` themselves when it has all of them.
std::span<const float> Pack(const Rows& rows, size_t columns, std::span<const float> values, std::vector<float>& packed) {
  if (rows.bitmap.empty()) return values;
  packed.resize(rows.count * columns);
  ForEachRow(rows.bitmap, values.size() / columns, columns,
             [&](size_t at, size_t to) { std::memcpy(packed.data() + to, values.data() + at, columns * sizeof(float)); });
  return packed;
}

absl::Status Write(const CodecSpec& spec, const Rows& rows, std::span<const float> packed, std::vector<std::byte>* out) {
  const auto body = static_cast<size_t>(EncodedBytes(spec, static_cast<int64_t>(packed.size()), Direction::kForward));
  out->clear();
  out->reserve(body + rows.bitmap.size() + kTrailerBytes);
  FUSIONLLM_RETURN_IF_ERROR(Encode(spec, Direction::kForward, packed, nullptr, nullptr, out, nullptr));
  const Trailer trailer{.version = kVersion,
                        .by_bitmap = rows.bitmap.empty() ? uint8_t{0} : uint8_t{1},
                        .unused = 0,
                        .rows = static_cast<uint32_t>(rows.count)};
  out->resize(body + rows.bitmap.size() + kTrailerBytes);
  if (!rows.bitmap.empty()) std::memcpy(out->data() + body, rows.bitmap.data(), rows.bitmap.size());
  std::memcpy(out->data() + body + rows.bitmap.size(), &trailer, kTrailerBytes);
  return absl::OkStatus();
}

absl::Status EncodeExactly(size_t columns, std::span<const float> values, std::vector<std::byte>* out) {
  const Rows rows = Choose(Exact(), columns, values);
  std::vector<float> packed;
  return Write(Exact(), rows, Pack(rows, columns, values, packed), out);
}

// The message of values + residual; then, of the rows it has, values become what it decodes to and the residual what it lost. An error
// leaves both.
absl::Status EncodeLossily(const CodecSpec& spec, size_t columns, std::span<float> values, std::vector<float>& residual,
                           std::vector<std::byte>* out) {
  const Rows rows = Choose(spec, columns, values);
  std::vector<float> corrected;
  const std::span<const float> packed = Pack(rows, columns, values, corrected);
  if (rows.bitmap.empty()) corrected.assign(packed.begin(), packed.end());
  const auto for_each_row = [&](const auto& visit) {
    if (rows.bitmap.empty()) {
      for (size_t at = 0; at < values.size(); at += columns) visit(at, at);
    } else {
      ForEachRow(rows.bitmap, values.size() / columns, columns, visit);
    }
  };
  for_each_row([&](size_t at, size_t to) {
    for (size_t i = 0; i < columns; ++i) corrected[to + i] += residual[at + i];
  });
  FUSIONLLM_RETURN_IF_ERROR(Write(spec, rows, corrected, out));
  FUSIONLLM_RETURN_IF_ERROR(DecodeRows(columns, *out, values));
  for_each_row([&](size_t at, size_t to) {
    for (size_t i = 0; i < columns; ++i) residual[at + i] = corrected[to + i] - values[at + i];
  });
  return absl::OkStatus();
}

}  // namespace

absl::Status EncodeRows(const CodecSpec& spec, size_t columns, std::span<float> values, std::vector<float>* residual,
                        std::vector<std::byte>* out) {
  if (IsSparse(spec.kind)) return absl::InvalidArgumentError("gradients of tied parameters are never sparsified");
  if (values.size() > static_cast<size_t>(kMaxElements)) {
    return absl::InvalidArgumentError(absl::StrFormat("a gradient of %d elements, the most is %d", values.size(), kMaxElements));
  }
  if (columns == 0 ? !values.empty() : values.size() % columns != 0) {
    return absl::InvalidArgumentError(absl::StrFormat("%d values are no rows of %d", values.size(), columns));
  }
  if (values.empty()) return Write(Exact(), {}, {}, out);
  if (spec.kind == CodecKind::kExact) return EncodeExactly(columns, values, out);
  if (residual->empty()) residual->resize(values.size());
  if (residual->size() != values.size()) {
    return absl::InvalidArgumentError(absl::StrFormat("a residual of %d elements for a gradient of %d", residual->size(), values.size()));
  }
  const CodecSpec plain{.kind = spec.kind};
  if (EncodeLossily(plain, columns, values, *residual, out).ok()) return absl::OkStatus();
  return EncodeExactly(columns, values, out);
}

absl::Status DecodeRows(size_t columns, std::span<const std::byte> message, std::span<float> out) {
  Trailer trailer;
  if (message.size() < kTrailerBytes) return Malformed("shorter than its trailer");
  std::memcpy(&trailer, message.data() + message.size() - kTrailerBytes, kTrailerBytes);
  message = message.first(message.size() - kTrailerBytes);
  if (trailer.version != kVersion || trailer.by_bitmap > 1 || trailer.unused != 0) return Malformed("another version");
  const size_t rows = columns == 0 ? 0 : out.size() / columns;
  if (rows * columns != out.size()) return Malformed("no whole rows are expected");
  if (trailer.by_bitmap == 0) {
    if (trailer.rows != rows) return Malformed("another number of rows");
    return Decode(Direction::kForward, message, nullptr, out, nullptr);
  }
  std::vector<uint8_t> bitmap(BitmapBytes(rows));
  if (message.size() < bitmap.size()) return Malformed("shorter than its bitmap");
  const std::span<const std::byte> body = message.first(message.size() - bitmap.size());
  if (!bitmap.empty()) std::memcpy(bitmap.data(), message.data() + body.size(), bitmap.size());
  size_t marked = 0;
  for (const uint8_t byte : bitmap) marked += static_cast<size_t>(std::popcount(byte));
  if (marked != trailer.rows) return Malformed("the bitmap has another number of rows");
  if (rows % 8 != 0 && bitmap.back() >> (rows % 8) != 0) return Malformed("the bitmap has rows beyond the last");
  // Decoded in front and moved to their places from the last to the first: a row never lies behind its place.
  const std::span<float> packed = out.first(marked * columns);
  FUSIONLLM_RETURN_IF_ERROR(Decode(Direction::kForward, body, nullptr, packed, nullptr));
  for (size_t row = rows; row-- > 0;) {
    float* const place = out.data() + row * columns;
    if (!Marked(bitmap.data(), row)) {
      std::memset(place, 0, columns * sizeof(float));
      continue;
    }
    --marked;
    std::memmove(place, out.data() + marked * columns, columns * sizeof(float));
  }
  return absl::OkStatus();
}

int64_t EncodedRowsBytes(const CodecSpec& spec, int64_t rows, int64_t columns, int64_t occupied) {
  const int64_t all = EncodedBytes(spec, rows * columns, Direction::kForward);
  const int64_t some = EncodedBytes(spec, std::min(rows, occupied) * columns, Direction::kForward) + (rows + 7) / 8;
  return static_cast<int64_t>(kTrailerBytes) + std::min(all, some);
}

}  // namespace fusionllm::compression
