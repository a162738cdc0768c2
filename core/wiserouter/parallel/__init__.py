"""Tasks over processes and machines, by joblib and the engines that it knows, and what a fork must wait for."""
