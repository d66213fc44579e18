// As much of NVIDIA's driver, libcuda.so.1, as cuDNN looks for when it is loaded, on machines that have none: every function answers that
// there is no device. With it the library lists and plans algorithms for a card that is described to it.
//
// Names are those of "CUDA Driver API", release 13.0; the functions take fewer arguments than there, and read none.
namespace {

constexpr int kNoDevice = 100;         // CUDA_ERROR_NO_DEVICE
constexpr int kDriverVersion = 13000;  // what the planning of kernels asks for

}  // namespace

#define FUSIONLLM_ABSENT(name) \
  int name() { return kNoDevice; }

extern "C" {

FUSIONLLM_ABSENT(cuCtxGetCurrent)
FUSIONLLM_ABSENT(cuCtxGetLimit)
FUSIONLLM_ABSENT(cuCtxPopCurrent)
FUSIONLLM_ABSENT(cuCtxPushCurrent)
FUSIONLLM_ABSENT(cuDeviceGet)
FUSIONLLM_ABSENT(cuDeviceGetCount)
FUSIONLLM_ABSENT(cuGetErrorName)
FUSIONLLM_ABSENT(cuGetErrorString)
FUSIONLLM_ABSENT(cuInit)
FUSIONLLM_ABSENT(cuKernelGetAttribute)
FUSIONLLM_ABSENT(cuKernelGetFunction)
FUSIONLLM_ABSENT(cuKernelSetAttribute)
FUSIONLLM_ABSENT(cuLaunchCooperativeKernel)
FUSIONLLM_ABSENT(cuLaunchKernel)
FUSIONLLM_ABSENT(cuLaunchKernelEx)
FUSIONLLM_ABSENT(cuLibraryGetKernel)
FUSIONLLM_ABSENT(cuLibraryLoadData)
FUSIONLLM_ABSENT(cuLibraryLoadFromFile)
FUSIONLLM_ABSENT(cuLibraryUnload)
FUSIONLLM_ABSENT(cuLinkAddData)
FUSIONLLM_ABSENT(cuLinkComplete)
FUSIONLLM_ABSENT(cuLinkCreate)
FUSIONLLM_ABSENT(cuLinkDestroy)
FUSIONLLM_ABSENT(cuModuleGetFunction)
FUSIONLLM_ABSENT(cuModuleLoadData)
FUSIONLLM_ABSENT(cuModuleUnload)
FUSIONLLM_ABSENT(cuOccupancyMaxPotentialClusterSize)
FUSIONLLM_ABSENT(cuStreamGetCtx)
FUSIONLLM_ABSENT(cuTensorMapEncodeIm2col)
FUSIONLLM_ABSENT(cuTensorMapEncodeTiled)

int cuDriverGetVersion(int* version) {
  *version = kDriverVersion;
  return 0;
}

}  // extern "C"
