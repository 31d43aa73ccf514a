# `cmake --install` puts programs into bin/ and our libraries into lib/, where these find each other
# and LibTorch. In the build tree CMake sets each target's RPATH to the folders of the libraries that
# it links, LibTorch's included, so LD_LIBRARY_PATH is not needed.
#
# The CUDA module is opened at run time, so no target links it. Where there is a CUDA compiler,
# building the server also builds the module.

if(CASTOR_WITH_CUDA AND TARGET castor_cuda)
  add_dependencies(castor-server castor_cuda)
  install(TARGETS castor_cuda LIBRARY DESTINATION lib)
endif()
install(TARGETS castor-server castor castor-load castor_engine RUNTIME DESTINATION bin LIBRARY DESTINATION lib)
set_target_properties(castor-server castor PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
set_target_properties(castor_engine PROPERTIES INSTALL_RPATH "$ORIGIN")
