// The TensorCodec of an NVIDIA GPU: tensors in its memory are encoded and decoded there, in the order of the back end's stream, and only
// encoded bytes cross to or from the host, through pinned memory. Same messages, errors and residuals as on the host, bit for bit.
//
// StartEncode and Decode wait for nothing but room in the direction's buffers (lib/kernels/cuda/transfers.h): what a peer sent is checked
// on the host before, what is sent when it has arrived there. Compiled by nvcc where there is a toolkit, and against the emulated card
// elsewhere (docs/design/cuda.md). Memory of the device: three times the greatest message for either direction, 4 bytes for each element
// that it keeps and a selection's workspace (select.h), 4 for each element kept while a micro-batch is under way, and with error feedback 8
// bytes for each element of an edge; beside it, who widens a bf16 tensor for it holds the floats.
#pragma once

#include <memory>

#include "lib/compression/tensor_codec.h"
#include "lib/kernels/backend.h"

namespace fusionllm::compression::cuda {

// For tensors in the memory of `backend`, which must outlive it; null where that is no CUDA back end. Uses the back end's stream, so the
// back end's thread is its thread.
std::unique_ptr<TensorCodec> TensorCodecOn(kernels::Backend& backend);

}  // namespace fusionllm::compression::cuda
