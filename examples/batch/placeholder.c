typedef int batch_core_placeholder;
