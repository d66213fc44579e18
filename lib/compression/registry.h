// The codecs as objects: what each is, loses, costs and writes. Everything else asks them, so a new codec is one file in codecs/ and a line
// in codecs/codecs.h (docs/design/extending.md).
//
// Stateless, immutable, alive as long as the program; thread-safe. What the public functions of spec.h, codec.h and loss_prior.h say of a
// codec they take from here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/compression/codec_kind.h"
#include "lib/compression/spec.h"
#include "lib/opdag/activation_kind.h"

namespace fusionllm::compression {

class DenseCodec;
class Mask;
struct EncoderState;

struct CodecTraits {
  CodecKind kind{};
  const char* name = "";  // in jobs, plans, profiles and events
  // A sentence for who reads a plan, where the name alone does not say what travels.
  const char* legend = "";
  std::optional<ValueKind> values;  // what kept values of top-k are called that travel so; none: they never do

  // What it costs. Profiles of GPUs are made from these (lib/planning/gpu_profile.h); messages are longer by scales, indices and a header.
  double bits_per_value = 32;
  double encoding_passes = 1;  // over the values

  CodecKind gradient{};         // what the gradient of an edge travels as
  CodecKind level{};            // which one's level of aggressiveness it has; its own but for a codec that stands beside another
  CodecKind for_loss_inputs{};  // what travels instead of it where a loss reads the values
  bool automatic = false;       // a policy that chooses tries it (policy.h), and so does a sender that backs off (codec_guard.h)

  // Relative errors (CompressionError). What a message may lose before its sender backs off, where the budget bears this codec; 0: no limit
  // comes from it. What it loses of normal values where that counts beside a selection; 0: next to nothing.
  double tolerated_error = 0;
  double error_of_normal = 0;
  CodecKind after_divergence{};  // what a run goes back to whose loss rises or is NaN or infinite

  // Nats per target that training loses where gradients of tied parameters travel so, with error feedback (docs/results/tied-gradients.md);
  // none: they never do.
  std::optional<double> tied_loss_increase;
};

class Codec {
 public:
  const CodecTraits traits;

  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;

  // Null: it sends a selection of the values, and their gradients under the selection's mask.
  virtual const DenseCodec* dense() const { return nullptr; }

  // What EncodedBytes (spec.h) says, without the header.
  virtual int64_t PayloadBytes(const CodecSpec& spec, int64_t n, Direction direction, int64_t bytes_of_element) const = 0;
  // A message as of compression::Encode (codec.h), which has checked spec, size and mask, and adds error feedback. `state` is never used
  // for its residual.
  virtual absl::Status Encode(const CodecSpec& spec, Direction direction, std::span<const float> values, const Mask& mask,
                              EncoderState& state, std::vector<std::byte>* out, Mask* mask_out) const = 0;

  // What ExpectedLossIncrease (loss_prior.h) says, of a kind of value that may travel so.
  virtual double ExpectedLossIncrease(const CodecSpec& spec, opdag::ActivationKind kind, int64_t steps) const { return 0; }
  // The same codec with parameters that lose less, the smallest message first: what a sender that backs off tries before other codecs.
  virtual std::vector<CodecSpec> LessAggressiveVariants(const CodecSpec& spec, Direction direction) const { return {}; }

  // Text form: the name, and of a codec that has parameters '@' and what Parameters gives. ParseParameters sets those of *spec; without an
  // '@' in `text`, the whole form, there are none. Errors: InvalidArgument names it.
  virtual std::string Usage() const { return traits.name; }
  virtual std::string Parameters(const CodecSpec& spec) const { return ""; }
  virtual absl::Status ParseParameters(absl::string_view text, std::optional<absl::string_view> parameters, CodecSpec* spec) const;
  // That the parameters are within their bounds. Errors: InvalidArgument.
  virtual absl::Status CheckParameters(const CodecSpec& spec) const;

 protected:
  constexpr explicit Codec(const CodecTraits& of) : traits(of) {}
  ~Codec() = default;
};

// One that sends all values. Top-k writes those that it kept in the form of one of these.
class DenseCodec : public Codec {
 public:
  const Layout layout;
  const int32_t block_size;  // elements that share a scale, a bfloat16 in front of all codes; 0: no scales

  const DenseCodec* dense() const final { return this; }
  int64_t PayloadBytes(const CodecSpec& spec, int64_t n, Direction direction, int64_t bytes_of_element) const override;
  absl::Status Encode(const CodecSpec& spec, Direction direction, std::span<const float> values, const Mask& mask, EncoderState& state,
                      std::vector<std::byte>* out, Mask* mask_out) const final;

  // Of n values, with their scales.
  virtual size_t ValueBytes(size_t n) const = 0;
  size_t ScaleBytes(size_t n) const;

  // The header's parameter: of a message whose values are no greater than this magnitude (quantize.h), and whether a sender may have
  // written one. Errors: InvalidArgument.
  virtual bool has_parameter() const { return block_size != 0; }
  virtual int32_t ParameterOf(uint32_t max_magnitude) const { return block_size; }
  virtual absl::Status CheckParameter(int32_t parameter) const;

  // Writes ValueBytes and returns the parameter. Errors: InvalidArgument names the first value that it refuses.
  absl::StatusOr<int32_t> WriteValues(std::span<const float> values, std::byte* out) const;
  // in: ValueBytes(out.size()). Errors: InvalidArgument for the parameter, and for values that are not finite.
  absl::Status ReadValues(const std::byte* in, int32_t parameter, std::span<float> out) const;
  // Whether ReadValues finds n finite values there, without decoding them.
  virtual bool AreFinite(std::span<const std::byte> in, size_t n) const;

 protected:
  constexpr DenseCodec(const CodecTraits& of, Layout dense_layout, int32_t block = 0)
      : Codec(of), layout(dense_layout), block_size(block) {}
  ~DenseCodec() = default;

 private:
  // Returns the greatest magnitude, or 0 where any value may be sent; beyond kMaxMagnitudeBits what was written means nothing.
  virtual uint32_t Write(const float* values, size_t n, std::byte* out) const = 0;
  // False: a scale or value is out of range.
  virtual bool Read(const std::byte* in, size_t n, int32_t parameter, float* out) const = 0;
};

// All, in the order of their kinds; and as schemas of jobs list them.
std::span<const Codec* const> Codecs();
std::span<const Codec* const> CodecsAsListed();

// `kind` is one of Codecs().
const Codec& CodecOf(CodecKind kind);
// Null where there is none.
const Codec* FindCodec(absl::string_view name);
const DenseCodec* FindDenseCodec(Layout layout);
const DenseCodec* FindValueCodec(ValueKind values);

absl::Status UnknownCodecError(absl::string_view text);
absl::Status ValuesNotFiniteError();

}  // namespace fusionllm::compression
