#include "lib/checkpoint/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "nlohmann/json.hpp"

namespace fusionllm::checkpoint {
namespace {

using tensor::DType;

struct StoredType {
  absl::string_view name;
  int64_t bits;  // of an element
  std::optional<DType> dtype;
};

// The types whose length is known, and so checked. The format gets new ones: a tensor of another type opens too, with the length that its
// offsets say.
constexpr std::array<StoredType, 23> kStoredTypes = {
    {{"F32", 32, DType::kF32},     {"F16", 16, DType::kF16},         {"BF16", 16, DType::kBF16},
     {"I32", 32, DType::kI32},     {"I64", 64, DType::kI64},         {"U8", 8, DType::kU8},
     {"F64", 64, std::nullopt},    {"I16", 16, std::nullopt},        {"I8", 8, std::nullopt},
     {"U16", 16, std::nullopt},    {"U32", 32, std::nullopt},        {"U64", 64, std::nullopt},
     {"BOOL", 8, std::nullopt},    {"F8_E4M3", 8, std::nullopt},     {"F8_E5M2", 8, std::nullopt},
     {"F8_E8M0", 8, std::nullopt}, {"F8_E4M3FNUZ", 8, std::nullopt}, {"F8_E5M2FNUZ", 8, std::nullopt},
     {"F6_E2M3", 6, std::nullopt}, {"F6_E3M2", 6, std::nullopt},     {"F4", 4, std::nullopt},
     {"C64", 64, std::nullopt},    {"C128", 128, std::nullopt}}};

const StoredType* FindStoredType(absl::string_view name) {
  const auto* found = std::find_if(kStoredTypes.begin(), kStoredTypes.end(), [&](const StoredType& type) { return type.name == name; });
  return found == kStoredTypes.end() ? nullptr : found;
}

// White space of JSON.
bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Builds the header while the JSON is parsed, without a document in memory: a document can take a hundred times the space of its text.
// Each callback returns false to stop, with the reason in error_.
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return InUnknownField() || (depth_ == 1 && entry_.name == kMetadata) || Unexpected("null"); }
  bool boolean(bool) override { return InUnknownField() || Unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { return InUnknownField() || Unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return InUnknownField() || Unexpected("a fraction or a number out of range");
  }
  bool binary(binary_t&) override { return Unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (InUnknownField()) return true;
    if (!in_array_) return Unexpected("a number");
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return Stop("a number out of range");
    if (numbers_.size() >= kMaxRank) return Unsupported(absl::StrCat("an array of more than ", kMaxRank, " numbers"));
    numbers_.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (InUnknownField()) return true;
    if (depth_ != 2 || in_array_) return Unexpected("a string");
    if (in_metadata_) {
      header.metadata[field_] = std::move(value);
      return true;
    }
    if (field_ != "dtype") return Unexpected("a string");
    entry_.dtype_name = std::move(value);
    return true;
  }

  bool start_object(std::size_t) override {
    if (InUnknownField()) return Deeper();
    if (depth_ >= 2 || in_array_) return Unexpected("an object");
    ++depth_;
    if (depth_ == 2) {
      in_metadata_ = entry_.name == kMetadata;
      seen_fields_ = 0;
    }
    return true;
  }

  bool key(string_t& name) override {
    if (unknown_depth_ > 0) return true;
    if (depth_ == 1) {
      if (name.empty()) return Stop("a tensor name of 0 bytes");
      if (name.size() > kMaxTensorNameBytes) return Unsupported(absl::StrCat("a tensor name of ", name.size(), " bytes"));
      if (!names_.insert(name).second) return Stop(absl::StrCat("the name '", name, "' twice"));
      entry_ = {};
      entry_.name = std::move(name);
      return true;
    }
    field_ = std::move(name);
    if (in_metadata_) return !header.metadata.contains(field_) || Stop(absl::StrCat("the metadata '", field_, "' twice"));
    const int bit = field_ == "dtype" ? 1 : field_ == "shape" ? 2 : field_ == "data_offsets" ? 4 : 0;
    if (bit == 0) return true;  // of a later version of the format
    if ((seen_fields_ & bit) != 0) return Stop(absl::StrCat("the field '", field_, "' of tensor '", entry_.name, "' twice"));
    seen_fields_ |= bit;
    return true;
  }

  bool end_object() override {
    if (unknown_depth_ > 0) return Shallower();
    if (depth_ == 2 && !in_metadata_) {
      if (seen_fields_ != 7) return Stop(absl::StrCat("tensor '", entry_.name, "' without dtype, shape or data_offsets"));
      if (header.tensors.size() >= kMaxTensors) return Unsupported(absl::StrCat("more than ", kMaxTensors, " tensors"));
      header.tensors.push_back(std::move(entry_));
    }
    --depth_;
    in_metadata_ = false;
    return true;
  }

  bool start_array(std::size_t) override {
    if (InUnknownField()) return Deeper();
    if (depth_ != 2 || in_metadata_ || in_array_ || (field_ != "shape" && field_ != "data_offsets")) return Unexpected("an array");
    in_array_ = true;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    if (unknown_depth_ > 0) return Shallower();
    in_array_ = false;
    if (field_ == "shape") {
      entry_.shape = tensor::Shape(numbers_);
      return true;
    }
    if (numbers_.size() != 2) return Stop(absl::StrCat("data_offsets of tensor '", entry_.name, "' that are not two numbers"));
    entry_.begin = numbers_[0];
    entry_.end = numbers_[1];
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return Stop(absl::StrCat("something that is no JSON at byte ", position));
  }

  SafetensorsHeader header;
  const std::string& error() const { return error_; }
  bool is_unsupported() const { return is_unsupported_; }  // error() is of a limit of ours, not of the format

 private:
  static constexpr absl::string_view kMetadata = "__metadata__";

  // Whether the value that comes belongs to a field of a tensor that is not known, and is passed over.
  bool InUnknownField() const {
    if (unknown_depth_ > 0) return true;
    return depth_ == 2 && !in_metadata_ && !in_array_ && field_ != "dtype" && field_ != "shape" && field_ != "data_offsets";
  }
  bool Deeper() {
    ++unknown_depth_;
    return true;
  }
  bool Shallower() {
    --unknown_depth_;
    return true;
  }
  bool Stop(std::string what) {
    if (error_.empty()) error_ = std::move(what);
    return false;
  }
  bool Unsupported(std::string what) {
    is_unsupported_ = error_.empty();
    return Stop(std::move(what));
  }
  bool Unexpected(absl::string_view what) { return Stop(absl::StrCat(what, " where it does not belong, at or after '", entry_.name, "'")); }

  int depth_ = 0;
  size_t unknown_depth_ = 0;  // below a field that is not known
  bool is_unsupported_ = false;
  bool in_array_ = false;
  bool in_metadata_ = false;
  int seen_fields_ = 0;
  std::string field_;
  std::vector<int64_t> numbers_;
  TensorEntry entry_;
  std::set<std::string> names_;
  std::string error_;
};

absl::Status CheckEntry(TensorEntry& entry, int64_t data_bytes) {
  const auto error = [&](auto... what) { return absl::InvalidArgumentError(absl::StrCat("tensor '", entry.name, "' ", what...)); };
  const StoredType* type = FindStoredType(entry.dtype_name);
  if (type != nullptr) entry.dtype = type->dtype;
  int64_t bits = type == nullptr ? 8 : type->bits;
  for (const int64_t extent : entry.shape.dims()) {
    // Empty tensors keep their other extents in check too: their product must not overflow later.
    if (__builtin_mul_overflow(bits, std::max<int64_t>(extent, 1), &bits)) return error("has the absurd shape ", entry.shape.ToString());
  }
  if (std::find(entry.shape.dims().begin(), entry.shape.dims().end(), 0) != entry.shape.dims().end()) bits = 0;
  if (entry.begin > entry.end || entry.end > data_bytes) {
    return error("lies at bytes ", entry.begin, " to ", entry.end, " of ", data_bytes, " bytes of data: is the file cut off?");
  }
  if (type != nullptr && (bits % 8 != 0 || entry.bytes() != bits / 8)) {
    return error("has ", entry.bytes(), " bytes, but ", entry.dtype_name, entry.shape.ToString(), " takes ", bits / 8,
                 bits % 8 == 0 ? "" : " and a part of one");
  }
  return absl::OkStatus();
}

absl::string_view NameOf(DType dtype) {
  return std::find_if(kStoredTypes.begin(), kStoredTypes.end(), [&](const StoredType& type) { return type.dtype == dtype; })->name;
}

// 0: less than a byte, or not known.
int64_t ElementBytes(const TensorSpec& spec) {
  if (!spec.foreign) return static_cast<int64_t>(tensor::SizeOf(spec.type.dtype));
  const StoredType* type = FindStoredType(spec.foreign->dtype_name);
  return type == nullptr ? 0 : type->bits / 8;
}

}  // namespace

std::optional<DType> StoredDType(absl::string_view name) {
  const StoredType* type = FindStoredType(name);
  return type == nullptr ? std::nullopt : type->dtype;
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json, int64_t data_bytes) {
  // The format wants the brace first; its own reader takes white space in front of it.
  const auto first = std::find_if_not(json.begin(), json.end(), IsSpace);
  if (first == json.end() || *first != '{') return absl::InvalidArgumentError("the header is no JSON object");
  HeaderHandler handler;
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &handler) || !handler.error().empty()) {
    const std::string what = absl::StrCat("the header has ", handler.error().empty() ? "an unknown form" : handler.error());
    return handler.is_unsupported() ? absl::UnimplementedError(absl::StrCat(what, ", which is not supported"))
                                    : absl::InvalidArgumentError(what);
  }
  SafetensorsHeader header = std::move(handler.header);
  for (TensorEntry& entry : header.tensors) FUSIONLLM_RETURN_IF_ERROR(CheckEntry(entry, data_bytes));
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorEntry& a, const TensorEntry& b) { return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name); });
  int64_t covered = 0;
  for (const TensorEntry& entry : header.tensors) {
    if (entry.begin != covered) {
      return absl::InvalidArgumentError(absl::StrCat("tensor '", entry.name, "' begins at byte ", entry.begin, " of the data, which ",
                                                     entry.begin < covered ? "overlaps" : "leaves a gap after", " what ends at ", covered));
    }
    covered = entry.end;
  }
  if (covered != data_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("the tensors end at byte ", covered, " but there are ", data_bytes, " bytes of data"));
  }
  return header;
}

absl::StatusOr<std::string> FormatSafetensorsHeader(std::vector<TensorSpec>& specs, const std::map<std::string, std::string>& metadata) {
  std::sort(specs.begin(), specs.end(), [](const TensorSpec& a, const TensorSpec& b) {
    const int64_t size_a = ElementBytes(a), size_b = ElementBytes(b);
    return size_a != size_b ? size_a > size_b : a.name < b.name;
  });
  // Ordered JSON, and written by hand where order matters: readers may want the tensors in the order of their data.
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!metadata.empty()) json["__metadata__"] = metadata;
  std::set<std::string> names;
  int64_t at = 0;
  for (const TensorSpec& spec : specs) {
    if (spec.name.empty() || spec.name.size() > kMaxTensorNameBytes || spec.name == "__metadata__") {
      return absl::InvalidArgumentError(absl::StrCat("'", spec.name.substr(0, 64), "' cannot be the name of a tensor"));
    }
    if (!names.insert(spec.name).second) return absl::InvalidArgumentError(absl::StrCat("two tensors are named '", spec.name, "'"));
    for (const int64_t extent : spec.type.shape.dims()) {
      if (extent < 0)
        return absl::InvalidArgumentError(absl::StrCat("tensor '", spec.name, "' has the shape ", spec.type.shape.ToString()));
    }
    const int64_t bytes = spec.bytes();
    // push_back keeps this linear; operator[] of an ordered document searches all keys.
    static_cast<nlohmann::ordered_json::object_t::Container&>(json.get_ref<nlohmann::ordered_json::object_t&>())
        .emplace_back(spec.name,
                      nlohmann::ordered_json{{"dtype", spec.foreign ? spec.foreign->dtype_name : std::string(NameOf(spec.type.dtype))},
                                             {"shape", spec.type.shape.dims()},
                                             {"data_offsets", {at, at + bytes}}});
    at += bytes;
  }
  std::string text;
  try {
    text = json.dump();
  } catch (const nlohmann::json::exception&) {
    return absl::InvalidArgumentError("a name of a tensor or its metadata is not valid UTF-8");
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  if (static_cast<int64_t>(text.size()) > kMaxHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a header of ", text.size(), " bytes for ", specs.size(), " tensors is too large"));
  }
  std::string result(8, '\0');
  for (size_t i = 0; i < 8; ++i) result[i] = static_cast<char>(text.size() >> (8 * i));
  return result + text;
}

}  // namespace fusionllm::checkpoint
