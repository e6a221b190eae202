module fleetmesh.org/fleetmesh

go 1.26
