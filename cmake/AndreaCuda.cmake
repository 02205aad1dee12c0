# Decides whether the CUDA back end is built: sets ANDREA_CUDA_BUILD. Filled by the CUDA room.
set(ANDREA_CUDA_BUILD OFF)
